"""The errors of attention that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError, TransformError
from torchyard_programs import ProgramError

__all__ = ["DoubleBackwardError", "PagesExhaustedError", "ProgramError", "TransformError"]


class DoubleBackwardError(TorchyardError, RuntimeError):
    """Gradients of attention's gradients were asked for, which no implementation computes."""


class PagesExhaustedError(TorchyardError, RuntimeError):
    """A cache has fewer free pages than a call needs; the call changed nothing."""
