"""What ``torchyard.optimize`` may do with this package: reuse keys and values of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchyard import hookimpl
from torchyard.optimization import (
    Applied,
    NotApplicableError,
    Optimization,
    OptimizationStage,
    Variant,
)

if TYPE_CHECKING:
    from torch import nn

__all__ = ["torchyard_optimizations"]


@hookimpl
def torchyard_optimizations() -> Sequence[Optimization]:
    """Return reuse of prompts that begin alike."""
    return [
        Optimization(
            "reuse",
            OptimizationStage.REUSE,
            "keys and values of prompts that begin alike, computed once",
            lambda model: [Variant("prompts", lambda keep: _reused(model))],
        )
    ]


def _reused(model: nn.Module) -> Applied:
    from torchyard_cache import CacheError, reuse

    try:
        cache = reuse(model)
    except (CacheError, TypeError) as error:
        raise NotApplicableError(str(error)) from error
    cache.__enter__()
    # Each measured run begins without what earlier ones left, as a new process would.
    return Applied(cache.close, reset=cache.clear)
