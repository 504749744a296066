"""torch.compile by repeated blocks, and torch's functions by what the registry chooses.

See docs/compile-regions.md, docs/compiled-backward.md, docs/linear-fusion.md and docs/reroute.md.
"""

from __future__ import annotations

from torchyard_compile._backward import BackwardReport, CompiledBackward, compiled_backward
from torchyard_compile._calls import CallSite
from torchyard_compile._compilation import compile_regions
from torchyard_compile._errors import (
    CompiledBackwardError,
    FallbackError,
    RecompileBudgetError,
    RegionWarning,
)
from torchyard_compile._fusion import LinearFusion
from torchyard_compile._graph_reroute import GraphReroute
from torchyard_compile._report import Compilation, Region, Report
from torchyard_compile._reroute import Reroute, RerouteMismatchError, reroute

__all__ = [
    "BackwardReport",
    "CallSite",
    "Compilation",
    "CompiledBackward",
    "CompiledBackwardError",
    "FallbackError",
    "GraphReroute",
    "LinearFusion",
    "RecompileBudgetError",
    "Region",
    "RegionWarning",
    "Report",
    "Reroute",
    "RerouteMismatchError",
    "compile_regions",
    "compiled_backward",
    "reroute",
]
