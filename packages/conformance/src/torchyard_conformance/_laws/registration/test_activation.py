"""Loading a plugin."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from torchyard_conformance import Subject, law, not_supported, unverified, violated
from torchyard_conformance._laws.registration._observed import (
    Observation,
    after_torch,
    alone,
    is_well,
    loaded,
    measure,
)

_IMPORT_SECONDS: Final = 0.5
_MODULES: Final = 500
# A busy machine makes anything slow once, seldom three times.
_TRIES: Final = 3


@law("registration.activates", profiles=("core", "smoke"))
def test_everything_that_it_declares_can_be_loaded(subject: Subject) -> None:
    """Every module of its manifest can be imported, and every hook returns what it promises.

    In a fresh interpreter, before torch is imported or after it; one of the two is enough here.

    Why: a module that cannot be imported shows only when somebody needs it, which is too late.

    Fix: `torchyard plugins -v --activate` shows the same reason with its traceback.
    """
    orders = [alone(subject)]
    if find_spec("torch") is not None:
        orders.append(after_torch(subject))
    found = [order.seen.get("activation", {}) for order in orders]
    if not subject.plugin.usable:
        unverified(f"the plugin is {subject.plugin.state}: {subject.plugin.reason}")
    if any(map(is_well, found)):
        return
    violated(_reason(orders[0], found[0]))


def _reason(order: Observation, found: dict[str, Any]) -> str:
    if not found:
        return f"expected the process to survive loading it, {order.death()}"
    if "raised" in found:
        return f"expected it to be loaded, got {found['raised']}"
    return f"expected it to be loaded, it is {found['state']}: {found['reason']}"


@law("registration.offers-what-it-declares", profiles=("core", "smoke"))
def test_it_offers_what_it_declares(subject: Subject) -> None:
    """Each contract under `[[implements]]` gets an implementation, each name in a list is one.

    Names of its own, in the lists of its manifest, must be names of implementations that it offers.

    Why: a name that nobody offers is skipped without a word, and the next one is chosen: a typing
    error makes a model slow, and nothing says so.

    Fix: compare the lists under `[order]` with the names that `torchyard_implementations` returns.
    """
    manifest = subject.manifest
    if not manifest.implements and not manifest.orders:
        not_supported("it implements no contract and ranks nothing")
    offers = loaded(subject)["offers"]
    for entry in manifest.implements:
        if not offers.get(str(entry.contract), ["nobody can ask for it"]):
            violated(f"expected an implementation of {entry.contract}, it offers none")
    for order in manifest.orders:
        own = [name for name in order.names if name.partition(".")[0] == subject.name]
        if str(order.contract) not in offers and own:
            continue
        known = offers.get(str(order.contract), [])
        if missing := sorted(set(own) - set(known)):
            violated(
                f"order of {order.contract} on {order.device}: expected names that it offers "
                f"({', '.join(known) or 'none'}), got {', '.join(missing)}"
            )
    if alone := sorted({str(entry.contract) for entry in manifest.implements} - set(offers)):
        unverified(f"no component that is installed defines {', '.join(alone)}; install it")


@law("registration.import-budget", profiles=("core", "smoke"), alone=True)
def test_importing_it_is_cheap(
    subject: Subject, record: Callable[[str, float | str], None]
) -> None:
    """Each of its modules is imported within half a second, and they bring at most 500 others.

    After torch, which whoever uses it has imported anyway. The best of three fresh interpreters
    counts, so that a busy machine does not.

    Why: its modules are imported in the middle of the first call, and by every worker process.

    Fix: import heavy things in `load`, open libraries there, build nothing at import.
    `python -X importtime` shows what takes long.
    """
    if find_spec("torch") is None:
        found = loaded(subject)
        tries = [found]
    else:
        loaded(subject)
        tries = [after_torch(subject).step("activation")]
        while _dear(tries) and len(tries) < _TRIES:
            tries.append(measure(subject).step("activation"))
    best = _best(tries)
    count = len(tries[0]["imported"])
    record("import_ms", sum(best.values()) * 1e3)
    record("modules", count)
    if slow := _dear(tries):
        violated(
            f"expected at most {_IMPORT_SECONDS} s for a module, got "
            + ", ".join(f"{seconds:.2f} s for {name}" for name, seconds in slow.items())
        )
    if count > _MODULES:
        violated(f"expected at most {_MODULES} modules to be imported by it, got {count}")


def _best(tries: list[Any]) -> dict[str, float]:
    return {
        name: min(found["import_seconds"].get(name, seconds) for found in tries)
        for name, seconds in tries[0]["import_seconds"].items()
    }


def _dear(tries: list[Any]) -> dict[str, float]:
    return {name: seconds for name, seconds in _best(tries).items() if seconds > _IMPORT_SECONDS}


@law("registration.quiet", profiles=("core", "smoke"))
def test_it_prints_nothing(subject: Subject) -> None:
    """Loading it writes nothing to stdout, by whatever means.

    Why: with `--json`, stdout is one document; a greeting in front of it breaks every program that
    reads it.

    Fix: use `logging`, or stderr. The text that came shows what prints.
    """
    loaded(subject)
    for observation in _observations(subject):
        notes = observation.step("activation").get("notes", [])
        printed = [note for note in notes if ": printed " in note]
        if printed or observation.process.stdout:
            found = printed[0] if printed else repr(observation.process.stdout[:200])
            violated(f"expected nothing on stdout, got {found}")


@law("registration.leaves-process-alone", profiles=("core", "smoke"))
def test_it_leaves_the_process_as_it_was(subject: Subject) -> None:
    """Loading it changes nothing that the whole process shares.

    Environment variables, signal handlers, `sys.path`, warning filters, the root logger, random
    states, the locale, torch's defaults, threads and precision, and more of this kind.

    Why: what a plugin changes for itself it changes for the program that it is loaded into, in the
    middle of a call, and nobody looks for it there.

    Fix: set nothing for the process at import; what a kernel needs is set around the call and set
    back.
    """
    found = loaded(subject)
    if find_spec("torch") is not None and is_well(after_torch(subject).step("activation")):
        # Importing torch changes some of it too, which is not the plugin's doing.
        found = after_torch(subject).step("activation")
    if found["left"]:
        changed = "; ".join(f"{key}: {a} -> {b}" for key, (a, b) in found["left"].items())
        violated(f"expected the process as it was, changed are {changed}")


def _observations(subject: Subject) -> list[Observation]:
    torch = find_spec("torch") is not None
    return [alone(subject), after_torch(subject)] if torch else [alone(subject)]


@law("registration.device-probe", profiles=("core",))
def test_it_knows_its_devices(subject: Subject) -> None:
    """The probe of each device that it declares with a module returns a status, present or not.

    The status names the device that was asked for, and says what to do where it is absent.

    Why: `torchyard doctor` and whoever looks for the best device asks first, on every machine,
    above all on those that do not have the device.

    Fix: return a DeviceStatus for the device in the argument, with a text, and a hint where it is
    not available; raise nothing.
    """
    declared = [device.name for device in subject.manifest.devices if device.module]
    if not declared:
        not_supported("it declares no device with a probe")
    found = loaded(subject)["devices"]
    for device in declared:
        status = found[device]
        if status["device"] != device or not status["text"]:
            violated(f"expected a status of {device!r} with a text, got {status}")
