"""What a model of transformers may ask for in vain."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["NoTensorError", "UnsupportedArgumentError"]


class UnsupportedArgumentError(TorchyardError, ValueError):
    """A model passes something that attention does not do; the message names it."""


class NoTensorError(UnsupportedArgumentError, AttributeError):
    """A model asks a mask for what a tensor has.

    An AttributeError besides, by which ``hasattr`` knows that there is none.
    """
