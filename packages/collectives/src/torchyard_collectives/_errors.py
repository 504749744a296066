"""The errors of collectives that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["CallMismatchError", "GradientConventionError", "GroupError", "TransformError"]


class GroupError(TorchyardError, ValueError):
    """A group is not there, is ambiguous, or does not hold this rank; the message says which."""


class GradientConventionError(TorchyardError, ValueError):
    """``grad`` is no convention of the op, so that its gradient would have to be guessed."""


class TransformError(TorchyardError, RuntimeError):
    """A transform of torch was applied to a form of an op that has no rule for it."""


class CallMismatchError(TorchyardError, RuntimeError):
    """Ranks called different collectives, or one with different shapes; names the ranks."""
