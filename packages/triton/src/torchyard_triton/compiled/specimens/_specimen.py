"""One thing that is compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchyard_triton._launch import Launch

__all__ = ["Specimen"]


@dataclass(frozen=True, slots=True)
class Specimen:
    """A kernel with a program, as it is compiled for an architecture.

    Attributes:
        contract: what it computes, or a part of it.
        kernel: its name, in the table and in budgets.
        program: what it is compiled with: a recorded program, a dtype.
        build: returns the launch; called where the specimen is compiled.
        matrix: whether it computes matrix products.
        small: whether its tiles are too small for the architecture's largest matrix instruction.
    """

    contract: str
    kernel: str
    program: str
    build: Callable[[], Launch]
    matrix: bool = True
    small: bool = False
