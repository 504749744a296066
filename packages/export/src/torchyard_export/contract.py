"""The contract ``export_target/1``: a form that a verified program can be given.

What an implementation loads is a function of no arguments that returns a :class:`Target`. A target
is asked for by name alone, ``targets=["export.pt2"]``; of our own plugin the first word may be
left out. What it makes is compared with the model before anything is kept, and again after every
load of :func:`torchyard_export.Artifact.verify`.

This module is what a plugin needs to implement the contract. It imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from torchyard import ContractDefinition, RequestField

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["CONTRACT", "DEFINITIONS", "ExportRequest", "Target", "TargetError"]

CONTRACT: Final = "export_target/1"


class TargetError(Exception):
    """A target refuses a program or its files; the message says what was expected and what came."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is known of a program before a target is asked.

    Attributes:
        device: where the program runs.
        ops: the operators that it calls, such as ``aten.linear.default``.
        dynamic: whether sizes differ between calls.
        loads: whether files that were made elsewhere are loaded, and nothing is made.
    """

    device: str
    ops: frozenset[str] = frozenset()
    dynamic: bool = False
    loads: bool = False

    def bucket(self) -> str:
        """Return the key under which decisions are locked."""
        kind = "load" if self.loads else "dynamic" if self.dynamic else "static"
        return f"{self.device} {kind}"


class Target(Protocol):
    """A form of programs: how it is made, judged as a file, and run."""

    #: Whether loading its files runs machine code that they hold. Such files are loaded only where
    #: their author is known.
    native: bool

    def export(self, program: ExportedProgram, folder: Path) -> Mapping[str, bytes]:
        """Return the files of the program's form, by name without folders.

        Args:
            program: recorded for inference; its recurrent layers are ops of ``torchyard_export``.
            folder: an empty one for what must be written on the way.

        Raises:
            TargetError: the program has no such form.
        """
        ...

    def load(
        self, files: Mapping[str, bytes], folder: Path
    ) -> Callable[[Sequence[Any]], Sequence[Any]]:
        """Return what runs the files: leaves of the inputs -> leaves of the outputs.

        Args:
            files: as :meth:`export` returned them, their digests verified.
            folder: an empty one that exists as long as the callable is used.

        Raises:
            TargetError: the files hold what must not be loaded.
        """
        ...

    def versions(self) -> Mapping[str, str]:
        """Return what the form depends on here: distribution -> version."""
        ...

    def findings(self, files: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
        """Return known lies that the files hold: (kind of finding, text)."""
        ...


def _parse(fields: Mapping[str, str]) -> ExportRequest:
    said = {"dynamic": fields.get("dynamic", "yes"), "loads": fields.get("loads", "no")}
    for name, value in said.items():
        if value not in {"no", "yes"}:
            raise ValueError(f"{name}: expected yes or no, got {value!r}")
    ops = frozenset(name for name in fields.get("ops", "").split(",") if name)
    dynamic, loads = (value == "yes" for value in said.values())
    return ExportRequest(fields.get("device", "cpu"), ops, dynamic, loads)


def _cases(device: str) -> Iterable[ExportRequest]:
    return [ExportRequest(device, dynamic=dynamic) for dynamic in (False, True)]


DEFINITIONS: Final = {
    CONTRACT: ContractDefinition(
        contract=CONTRACT,
        summary="a form that a verified program can be given, such as ONNX",
        fields=(
            RequestField("device", "torch device type of the program", "cpu"),
            RequestField("ops", "operators of the program, separated by commas", ""),
            RequestField("dynamic", "whether sizes differ between calls: yes or no", "yes"),
            RequestField("loads", "whether files are loaded and nothing is made: yes or no", "no"),
        ),
        parse=_parse,
        cases=_cases,
    )
}
