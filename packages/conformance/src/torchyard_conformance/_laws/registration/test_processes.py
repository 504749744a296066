"""Loading a plugin again, in other processes and orders, and exiting."""

from __future__ import annotations

from typing import Any

from torchyard_conformance import Subject, law, not_supported, unverified, violated
from torchyard_conformance._laws.registration._observed import (
    Observation,
    after_torch,
    alone,
    hold_equal,
    is_well,
    loaded,
)


@law("registration.import-orders", profiles=("core", "smoke"))
def test_it_works_before_and_after_torch(subject: Subject) -> None:
    """It offers the same whether it is loaded before torch is imported or after.

    Two fresh interpreters: one loads the plugin and then imports torch, one the other way round.

    Why: nobody can promise an import order. A program that is turned round by a formatter must not
    lose its device.

    Fix: import torch where you need it; look for nothing in `sys.modules`; do the same work
    whichever comes first.
    """
    after = after_torch(subject)
    hold_equal(subject, after.step("activation"), "when torch was imported before")
    before = alone(subject)
    hold_equal(subject, before.step("activation"), "when torch was not imported")
    if isinstance(before.seen.get("torch"), dict):
        violated(f"expected torch to be importable after it, got {before.seen['torch']['raised']}")
    hold_equal(subject, before.step("after torch"), "after torch was imported later")


@law("registration.re-entrant", profiles=("core", "smoke"))
def test_it_can_be_asked_again(subject: Subject) -> None:
    """A second and a third registry of one process get from it what the first one got.

    Why: a program makes registries of its own to decide for another machine or another set of
    plugins, and tests make many.

    Fix: hooks return data and register nothing. What may be done once only belongs into `load`,
    guarded.
    """
    again = _again(subject)
    for found in again:
        hold_equal(subject, found, "for another registry of the process")


@law("registration.fork", profiles=("core", "smoke"))
def test_it_survives_a_fork(subject: Subject) -> None:
    """In a forked child of a process that loaded it, it offers what it offers in the parent.

    Loading alone is tried, no kernel: a device's runtime may be unusable after a fork, and says so
    when it is used.

    Why: data loaders fork. A child that waits for a lock or a thread of its parent waits for ever.

    Fix: start no threads and hold no locks at import; open the device in `load`, per process.
    """
    found = _first(subject).step("fork")
    if "absent" in found:
        not_supported(found["absent"])
    if not all(map(is_well, _again(subject))):
        unverified("it cannot be asked again in one process; see registration.re-entrant")
    hold_equal(subject, found, "in a forked child")


@law("registration.spawn", profiles=("core", "smoke"))
def test_it_works_in_a_second_process(subject: Subject) -> None:
    """In a spawned child, while its parent has it loaded too, it offers the same.

    Why: every worker of a training job is a process of its own, on the same machine.

    Fix: take nothing at import that only one process may have: a lock file, a port, the device
    itself.
    """
    hold_equal(subject, _first(subject).step("spawn"), "in a second process")


@law("registration.unload", profiles=("core", "smoke"))
def test_a_process_that_loaded_it_can_end(subject: Subject) -> None:
    """A process that loaded it ends at once and with the status that it meant to end with.

    Why: a thread that nobody ends keeps every script from ending; an exit handler that fails turns
    a success into a failure, hours after the work was done.

    Fix: threads are daemons or are ended by an exit handler, exit handlers raise nothing and never
    call `os._exit`. The trace shows what the process was waiting for.
    """
    observation = _first(subject)
    if "end" not in observation.seen:
        unverified(f"the process never came to its end: {observation.death()}")
    if observation.process.returncode != 0:
        violated(f"expected the process to end with status 0, {observation.death()}")


def _first(subject: Subject) -> Observation:
    """Return the process that loaded it before torch; unverified where that did not work."""
    loaded(subject)
    if not is_well(alone(subject).step("activation")):
        unverified("it cannot be loaded before torch; see registration.import-orders")
    return alone(subject)


def _again(subject: Subject) -> list[Any]:
    found = _first(subject).seen.get("again", {"raised": "the process ended"})
    return found if isinstance(found, list) else [found]
