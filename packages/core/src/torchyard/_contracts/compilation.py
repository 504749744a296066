"""Compilations: kernels that can be compiled on a machine without their device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchyard import arguments


@dataclass(frozen=True, slots=True)
class Compilation:
    """A kernel of an implementation, as it is compiled ahead of time for an architecture.

    Attributes:
        architecture: what it is compiled for, as the plugin's accelerators name theirs: ``sm_90``.
        name: the kernel's, and of what it is compiled with, joined by ``/``; an architecture has
            each name once.
        missing: returns why nothing can compile it here; empty where something can.
        run: compiles it, and returns figures by name, such as its registers. Raises where it does
            not compile, or where its code is not what it must be.
    """

    architecture: str
    name: str
    missing: Callable[[], str]
    run: Callable[[], Mapping[str, float | str]]

    def __post_init__(self) -> None:
        for field in ("architecture", "name"):
            arguments.text("Compilation", field, getattr(self, field))
        for field in ("missing", "run"):
            arguments.function(f"Compilation {self.name!r}", field, getattr(self, field))
