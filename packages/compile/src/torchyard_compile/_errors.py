"""What is raised where a region or a backward pass is not compiled, or too often."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["CompiledBackwardError", "FallbackError", "RecompileBudgetError", "RegionWarning"]


class CompiledBackwardError(TorchyardError, RuntimeError):
    """Backward passes are not compiled; says why."""


class FallbackError(TorchyardError, RuntimeError):
    """A region, or a part of it, would run without being compiled; says which, and the line."""


class RecompileBudgetError(TorchyardError, RuntimeError):
    """A region was compiled more often than its budget; says which guards failed."""


class RegionWarning(UserWarning):
    """What one of the package's errors would say, where a warning was asked for."""
