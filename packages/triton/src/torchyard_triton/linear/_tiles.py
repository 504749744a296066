"""How a product is cut, by architecture; frozen in ``tiles.json`` with date and reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton.architectures import names_of

__all__ = ["LinearTiles", "linear_tiles"]


@dataclass(frozen=True, slots=True)
class LinearTiles:
    """How a product is cut and compiled.

    Attributes:
        rows, outputs, depth: of a tile: powers of two, 16 or more.
        warps, stages: of the compiled kernel.
        parts: how many parts the depth is cut into; 0: chosen from sizes.
    """

    rows: int = 64
    outputs: int = 64
    depth: int = 32
    warps: int = 4
    stages: int = 2
    parts: int = 0

    def within(self, rows: int, group: int) -> LinearTiles:
        """Return tiles that are no larger than rows need, each within one group of products."""
        padded = max(16, 1 << max(0, rows - 1).bit_length())
        return replace(
            self, rows=min(self.rows, padded), depth=min(self.depth, group) if group else self.depth
        )


@cache
def linear_tiles(architecture: str, kind: str) -> LinearTiles:
    """Return an architecture's tiles; the default where it has no own.

    Args:
        architecture: as ``torchyard_triton.architectures`` names it.
        kind: ``half``, ``float32``, ``gated`` or ``rounded`` (a weight of int8 or int4).
    """
    table = frozen_table("linear/tiles.json")
    rows = dict(table["default"])
    for name in reversed(names_of(architecture)):
        rows |= table["architectures"].get(name, {})
    return LinearTiles(**rows[kind])
