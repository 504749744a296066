"""What is raised where a region is not compiled, or too often."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["FallbackError", "RecompileBudgetError", "RegionWarning"]


class FallbackError(TorchyardError, RuntimeError):
    """A region, or a part of it, would run without being compiled; says which, and the line."""


class RecompileBudgetError(TorchyardError, RuntimeError):
    """A region was compiled more often than its budget; says which guards failed."""


class RegionWarning(UserWarning):
    """What FallbackError or RecompileBudgetError would say, where a warning was asked for."""
