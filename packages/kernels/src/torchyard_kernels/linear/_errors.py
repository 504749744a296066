"""The errors of linear layers that a user can act on."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["PackedGradientError", "PackedWriteError"]


class PackedGradientError(TorchyardError, RuntimeError):
    """The gradient of a packed weight was asked for, which is a constant."""


class PackedWriteError(TorchyardError, RuntimeError):
    """A packed weight was to be written, or its memory read, in a way that it does not allow.

    No TypeError: torch takes one in ``weight += x`` for a reason to compute ``weight + x``.
    """
