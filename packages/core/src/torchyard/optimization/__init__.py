"""One call that makes a model faster or smaller by what is installed; see docs/optimize.md.

:func:`torchyard.optimize` is in the package above. Here are its results, plans, and what a plugin
offers by the hook ``torchyard_optimizations``.
"""

from __future__ import annotations

from torchyard._contracts.optimization import (
    Applied,
    Optimization,
    OptimizationStage,
    Variant,
)
from torchyard._errors import NotApplicableError, OptimizeError, PlanError
from torchyard.optimization._api import Optimized, apply_plan
from torchyard.optimization._plan import Plan, PlanStep, read_plan
from torchyard.optimization._report import Figures, Report, Trial, TrialOutcome

__all__ = [
    "Applied",
    "Figures",
    "NotApplicableError",
    "Optimization",
    "OptimizationStage",
    "OptimizeError",
    "Optimized",
    "Plan",
    "PlanError",
    "PlanStep",
    "Report",
    "Trial",
    "TrialOutcome",
    "Variant",
    "apply_plan",
    "read_plan",
]
