"""The errors of bundles and of caches."""

from __future__ import annotations

from torchyard import TorchyardError

__all__ = ["BundleError", "CacheError"]


class BundleError(TorchyardError, ValueError):
    """A bundle is refused: it is not as it was written, or not by a key that is trusted.

    Nothing of it was written or unpickled.
    """


class CacheError(TorchyardError, RuntimeError):
    """A cache cannot do what is asked of it; says what to do instead."""
