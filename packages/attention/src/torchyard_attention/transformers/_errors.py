"""The errors of arguments that attention does not support."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["NoTensorError", "UnsupportedArgumentError"]


class UnsupportedArgumentError(TorchyardError, ValueError):
    """A model passes an argument that attention does not support; the message names it."""


class NoTensorError(UnsupportedArgumentError, AttributeError):
    """A model asks a mask for what a tensor has.

    An AttributeError besides, by which ``hasattr`` knows that there is none.
    """
