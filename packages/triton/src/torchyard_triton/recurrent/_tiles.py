"""How a step is cut; frozen in ``tiles.json`` with date and reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from torchyard_triton._frozen_tables import frozen_table

__all__ = ["StepTiles", "step_tiles"]


@dataclass(frozen=True, slots=True)
class StepTiles:
    """How a step is cut and compiled.

    Attributes:
        rows, columns, depth: sequences, hidden units, and products at once: powers of two, 16 or
            more.
        warps, stages: of the compiled kernel.
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 2

    def within(self, batch: int) -> StepTiles:
        """Return tiles that are no larger than a batch needs."""
        return replace(self, rows=min(self.rows, max(16, 1 << max(0, batch - 1).bit_length())))

    @property
    def constants(self) -> dict[str, int]:
        """The kernels' constants."""
        return {
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "DEPTH": self.depth,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


@cache
def step_tiles(kernel: str) -> StepTiles:
    """Return the tiles of a kernel, which are the same on every architecture.

    Args:
        kernel: ``step`` or ``step_gradient``.
    """
    return StepTiles(**frozen_table("recurrent/tiles.json")["default"][kernel])
