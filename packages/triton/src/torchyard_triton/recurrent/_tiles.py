"""How a step is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["StepTiles"]


@dataclass(frozen=True, slots=True)
class StepTiles:
    """How a step is cut and compiled.

    Attributes:
        rows, columns, depth: sequences, hidden units, and products at once: powers of two, 16 or
            more.
        warps, stages: of the compiled kernel.
    """

    rows: int = 64
    columns: int = 32
    depth: int = 64
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
