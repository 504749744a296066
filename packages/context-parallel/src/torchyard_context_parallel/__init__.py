"""Attention over a sequence that is spread over many ranks."""

from __future__ import annotations

from torchyard_context_parallel._api import context_parallel_attention
from torchyard_context_parallel._model import context_parallel
from torchyard_context_parallel._sharding import Sharding
from torchyard_context_parallel._shards import position_ids, shard, unshard

__all__ = [
    "Sharding",
    "context_parallel",
    "context_parallel_attention",
    "position_ids",
    "shard",
    "unshard",
]
