"""The errors of linear layers that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["PackedGradientError"]


class PackedGradientError(TorchyardError, RuntimeError):
    """The gradient of a packed weight was asked for, which is a constant."""
