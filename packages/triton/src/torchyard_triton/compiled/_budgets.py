"""Spills that kernels may have, each with its reason."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from torchyard_triton.architectures import names_of

__all__ = ["BUDGETS", "Budget", "budget_of"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What one kernel may spill on one architecture with one minor version of Triton.

    Attributes:
        architecture, triton, kernel: of what: resource figures move with Triton's minor version.
        spills: at most, see ``Figures``.
        reason: why.
    """

    architecture: str
    triton: str
    kernel: str
    spills: int
    reason: str


@cache
def _read() -> tuple[Budget, ...]:
    text = files("torchyard_triton.compiled").joinpath("budgets.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)
    return tuple(Budget(**row) for row in rows)


BUDGETS = _read()


def budget_of(architecture: str, triton: str, kernel: str) -> int:
    """Return the spills that a kernel is granted; 0 where nothing is said."""
    minor = ".".join(triton.split(".")[:2])
    found = {(one.architecture, one.triton, one.kernel): one.spills for one in BUDGETS}
    names = names_of(architecture)
    return next((found[key] for name in names if (key := (name, minor, kernel)) in found), 0)
