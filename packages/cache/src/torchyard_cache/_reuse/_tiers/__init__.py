"""Tiers below memory: a folder, a server that machines share, memory, and each compressed."""

from __future__ import annotations

from torchyard_cache._reuse._tiers._compressed import CompressedTier
from torchyard_cache._reuse._tiers._disk import DiskTier
from torchyard_cache._reuse._tiers._limited import LimitedTier
from torchyard_cache._reuse._tiers._memory import MemoryTier
from torchyard_cache._reuse._tiers._packing import pack, unpack
from torchyard_cache._reuse._tiers._tier import Tier
from torchyard_cache._reuse._tiers._valkey import ValkeyTier

__all__ = [
    "CompressedTier",
    "DiskTier",
    "LimitedTier",
    "MemoryTier",
    "Tier",
    "ValkeyTier",
    "pack",
    "unpack",
]
