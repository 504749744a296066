"""The errors of recurrent layers that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["RecurrentDoubleBackwardError"]


class RecurrentDoubleBackwardError(TorchyardError, RuntimeError):
    """Gradients of a recurrent layer's gradients were asked for, where none are recorded."""
