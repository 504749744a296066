"""The runbook: numbered steps, each with its commands."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from torchyard_release._copies._drift import Derived, Drift
from torchyard_release._declaration._train import Train
from torchyard_release._errors import WorkspaceError

_STEP: Final = re.compile(r"(?m)^(\d+)\. (.*(?:\n(?!\d+\. |#|<!--|\n).*)*)")
_CODE: Final = re.compile(r"`([^`]+)`")
# What a step may have run; any other word in code is a name.
_PROGRAMS: Final = {"git", "nox", "pip", "python", "torchyard", "towncrier"}
_OURS: Final = ("torchyard", "release")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the runbook.

    Attributes:
        number: as it is written.
        text: the whole step.
        commands: what it has the operator run, in order.
    """

    number: int
    text: str
    commands: tuple[str, ...]


def read_runbook(path: Path) -> tuple[Step, ...]:
    """Return the steps of a runbook; WorkspaceError where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorkspaceError(
            f"{path}: {error.strerror}", "write it, or correct `runbook` in train.toml"
        ) from None
    steps = tuple(
        Step(int(match[1]), match[2], tuple(filter(_is_command, _CODE.findall(match[2]))))
        for match in _STEP.finditer(text)
    )
    if not steps:
        raise WorkspaceError(f"{path}: it has no numbered steps", "write `1. ...`")
    return steps


def derive_runbook(root: Path, train: Train, commands: click.Group) -> Derived:
    """Find steps that are out of order or without a command, and commands that do not exist.

    Args:
        root: of the repository.
        train: the declaration.
        commands: the group ``torchyard release``.
    """
    steps = read_runbook(root / train.runbook)
    drifts = []
    for expected, step in enumerate(steps, 1):
        name = f"step {step.number}"
        if step.number != expected:
            drifts.append(Drift(train.runbook, name, "out of order", str(expected), "renumber"))
        if not step.commands:
            drifts.append(
                Drift(train.runbook, name, "no command", "one", "say in code what is run")
            )
        for written in step.commands:
            if unknown := _unknown(written, commands):
                drifts.append(
                    Drift(
                        train.runbook, name, f"`{written}`", "a command", f"{unknown}; correct it"
                    )
                )
    return Derived(tuple(drifts), {}, len(steps))


def _is_command(code: str) -> bool:
    words = code.split()
    return len(words) > 1 and words[0] in _PROGRAMS


def _unknown(written: str, commands: click.Group) -> str:
    """Return what one of our own commands does not have; empty where it has everything."""
    words = shlex.split(written)
    if tuple(words[:2]) != _OURS:
        return ""
    group: click.Command = commands
    context = click.Context(commands)
    rest = words[2:]
    while isinstance(group, click.Group) and rest:
        found = group.get_command(context, rest[0])
        if found is None:
            return f"there is no {rest[0]!r}"
        group, rest = found, rest[1:]
    options = {name for parameter in group.params for name in parameter.opts}
    for word in rest:
        name = word.partition("=")[0]
        if name.startswith("-") and name not in options:
            return f"`{' '.join(words[:3])}` has no {name}"
    return ""
