"""torch.compile by repeated blocks: what was compiled, what it cost, and why it was compiled again.

See docs/compile-regions.md.
"""

from __future__ import annotations

from torchyard_compile._compilation import compile_regions
from torchyard_compile._errors import FallbackError, RecompileBudgetError, RegionWarning
from torchyard_compile._report import Compilation, Region, Report

__all__ = [
    "Compilation",
    "FallbackError",
    "RecompileBudgetError",
    "Region",
    "RegionWarning",
    "Report",
    "compile_regions",
]
