"""The one error of programs."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["ProgramError"]


class ProgramError(TorchyardError, TypeError):
    """A function does something that cannot be recorded; the message says what."""
