"""Keys, values and encoder outputs that are not computed twice."""

from __future__ import annotations

from torchyard_cache._reuse._eviction import Replay, chat_trace, prompt_trace, simulate
from torchyard_cache._reuse._generation import Reuse, reuse
from torchyard_cache._reuse._module import ReusedModule, reuse_module
from torchyard_cache._reuse._prefixes import PrefixCache
from torchyard_cache._reuse._stats import Stats
from torchyard_cache._reuse._tiers import CompressedTier, DiskTier, MemoryTier, ValkeyTier

__all__ = [
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
