"""Bundles of compiled artifacts, and reuse of keys, values and encoder outputs.

``torchyard_cache.artifacts`` has the bundles. ``reuse`` and ``reuse_module`` are loaded when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchyard_cache._errors import BundleError, CacheError

if TYPE_CHECKING:
    from torchyard_cache._reuse import (
        DiskTier,
        Reuse,
        ReusedModule,
        Stats,
        ValkeyTier,
        reuse,
        reuse_module,
    )

__all__ = [
    "BundleError",
    "CacheError",
    "DiskTier",
    "Reuse",
    "ReusedModule",
    "Stats",
    "ValkeyTier",
    "reuse",
    "reuse_module",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torchyard_cache import _reuse

    return getattr(_reuse, name)
