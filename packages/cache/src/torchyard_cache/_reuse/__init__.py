"""Keys, values and encoder outputs that are not computed twice."""

from __future__ import annotations

from torchyard_cache._reuse._generation import Reuse, reuse
from torchyard_cache._reuse._module import ReusedModule, reuse_module
from torchyard_cache._reuse._stats import Stats
from torchyard_cache._reuse._tiers import DiskTier, ValkeyTier

__all__ = ["DiskTier", "Reuse", "ReusedModule", "Stats", "ValkeyTier", "reuse", "reuse_module"]
