"""Bundles of compiled artifacts, and reuse of keys, values and encoder outputs.

``torchyard_cache.artifacts`` has the bundles. Everything else is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchyard_cache._errors import BundleError, CacheError

if TYPE_CHECKING:
    from torchyard_cache._reuse import (
        CompressedTier,
        DiskTier,
        MemoryTier,
        PrefixCache,
        Replay,
        Reuse,
        ReusedModule,
        Stats,
        ValkeyTier,
        chat_trace,
        prompt_trace,
        reuse,
        reuse_module,
        simulate,
    )

__all__ = [
    "BundleError",
    "CacheError",
    "CompressedTier",
    "DiskTier",
    "MemoryTier",
    "PrefixCache",
    "Replay",
    "Reuse",
    "ReusedModule",
    "Stats",
    "ValkeyTier",
    "chat_trace",
    "prompt_trace",
    "reuse",
    "reuse_module",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torchyard_cache import _reuse

    return getattr(_reuse, name)
