"""Kernels compiled ahead of time for architectures that the machine does not have, and judged.

``python -m torchyard_triton.compiled sm_90 gfx942`` compiles every kernel with several programs and
prints a table; the process must not interpret.
"""

from __future__ import annotations

from torchyard_triton.compiled._budgets import BUDGETS, Budget
from torchyard_triton.compiled._cache import FiguresCache, digest
from torchyard_triton.compiled._compilation import compile_launch
from torchyard_triton.compiled._compilations import FaultyCodeError, compilations
from torchyard_triton.compiled._figures import (
    Figures,
    amd_figures,
    amd_scalar_registers,
    faults,
    nvidia_figures,
)
from torchyard_triton.compiled._occupancy import unit_waves

__all__ = [
    "BUDGETS",
    "Budget",
    "FaultyCodeError",
    "Figures",
    "FiguresCache",
    "amd_figures",
    "amd_scalar_registers",
    "compilations",
    "compile_launch",
    "digest",
    "faults",
    "nvidia_figures",
    "unit_waves",
]
