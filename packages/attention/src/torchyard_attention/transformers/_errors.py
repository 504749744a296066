"""What a model of transformers may ask for in vain."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["UnsupportedArgumentError"]


class UnsupportedArgumentError(TorchyardError, ValueError):
    """A model passes something that attention does not do; the message names it."""
