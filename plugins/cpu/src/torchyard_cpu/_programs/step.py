"""One step of the native kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["COLUMN", "RAW", "ROW", "TILE", "UNIFORM", "Step"]

UNIFORM, ROW, COLUMN, TILE = range(4)
# The number that stands for the raw score.
RAW: Final = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One native step.

    Attributes:
        op: its name in ``_native.score_ops()``.
        args: numbers of earlier steps, or RAW.
        shape: UNIFORM, ROW, COLUMN or TILE.
        lanes: ``f``, ``i`` (truth values too) or ``l``.
        extra: what the operation says it is.
        tensor: number of the captured tensor that it reads; -1: none.
        dimension: of an index, for messages.
    """

    op: str
    args: tuple[int, ...]
    shape: int
    lanes: str
    extra: int = 0
    tensor: int = -1
    dimension: int = 0
