"""A kernel with everything it is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Launch"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel and everything it is started with.

    Attributes:
        kernel: a jit function.
        grid: how many programs, by axis.
        arguments: of its parameters that are no constants, in order.
        constants: its constants, and the compiler's options ``num_warps`` and ``num_stages``.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    def run(self) -> None:
        """Start the kernel; a grid of nothing is nothing."""
        if 0 not in self.grid:
            self.kernel[self.grid](*self.arguments, **self.constants)
