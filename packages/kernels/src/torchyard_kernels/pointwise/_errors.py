"""The error of foreach_map that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["InPlaceGradientError"]


class InPlaceGradientError(TorchyardError, RuntimeError):
    """Tensors whose gradients are recorded were to be written to."""
