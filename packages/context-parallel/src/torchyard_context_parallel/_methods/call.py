"""The call of attention over a spread sequence: its ranks, and what each of them holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from torchyard_attention import BlockMask
from torchyard_context_parallel._methods.heads import HeadShards
from torchyard_context_parallel._parts import mask_of_part, score_mod_of_part, sees
from torchyard_context_parallel._sharding import Ranges


@dataclass(frozen=True, slots=True)
class Call:
    """Everything but the tensors.

    Attributes:
        ring: the ranks that keys are sent around in; None: this rank holds all keys.
        queries, keys: what each rank of the ring holds, after its heads were exchanged.
        query_heads, key_heads: how heads are divided before the ring.
        heads: [start, stop) of the query heads that this rank computes.
        score_mod, block_mask: of the whole sequence.
        scale: of the raw scores; None: 1 / sqrt(D).
        runs_user_code: whether any rank may run a score_mod or a mask_mod, which can raise on that
            rank alone; alike on every rank.
    """

    ring: dist.ProcessGroup | None
    queries: tuple[Ranges, ...]
    keys: tuple[Ranges, ...]
    query_heads: HeadShards
    key_heads: HeadShards
    heads: tuple[int, int]
    score_mod: Callable[..., Any] | None
    block_mask: BlockMask | None
    scale: float | None
    runs_user_code: bool

    @property
    def ranks(self) -> int:
        """How many ranks the ring has."""
        return 1 if self.ring is None else self.ring.size()

    @property
    def rank(self) -> int:
        """This rank's place in the ring."""
        return 0 if self.ring is None else self.ring.rank()

    def needs(self, queries: int, keys: int) -> bool:
        """Return whether the queries of one rank see any key of another; alike on every rank."""
        return sees(self.block_mask, self.queries[queries], self.keys[keys])

    def modifiers(self, keys: Ranges, device: torch.device) -> dict[str, Any]:
        """Return what attention of this rank's queries over some keys is called with."""
        queries = self.queries[self.rank]
        return {
            "score_mod": score_mod_of_part(self.score_mod, queries, keys, self.heads, device),
            "block_mask": mask_of_part(self.block_mask, queries, keys, self.heads),
            "scale": self.scale,
            "enable_gqa": True,
        }
