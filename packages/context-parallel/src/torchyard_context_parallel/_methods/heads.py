"""From shards of the sequence to shards of the heads, and back.

Between the ranks of a group, every rank sends the heads that it does not compute and receives the
missing positions of those that it does. Source: DeepSpeed-Ulysses (arXiv 2309.14509).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_context_parallel._methods.exchange import exchange
from torchyard_context_parallel._sharding import Ranges, in_order, length_of, out_of_order


@dataclass(frozen=True, slots=True)
class HeadShards:
    """How a group's ranks divide the heads of one tensor.

    Attributes:
        group: the ranks; None: this rank alone, which keeps everything.
        parts: the ranges of the sequence that each rank holds outside.
        heads: [start, stop) of the heads that each rank computes. Key heads may be on several
            ranks, for the query heads that share them; their gradients are added up.
    """

    group: dist.ProcessGroup | None
    parts: tuple[Ranges, ...]
    heads: tuple[tuple[int, int], ...]

    def inside(self, tensor: Tensor) -> Tensor:
        """Return this rank's heads of all positions from all heads of its own positions.

        Args:
            tensor: [B, heads, positions, ...].
        """
        group = self.group
        if group is None:
            return tensor
        own, lengths = group.rank(), list(map(length_of, self.parts))
        start, stop = self.heads[own]
        others = [rank for rank in range(group.size()) if rank != own]
        received = exchange(
            group,
            {rank: [tensor[:, slice(*self.heads[rank])]] for rank in others},
            {
                rank: [
                    tensor.new_empty(
                        (tensor.shape[0], stop - start, lengths[rank], *tensor.shape[3:])
                    )
                ]
                for rank in others
            },
        ).wait()
        pieces = [
            tensor[:, start:stop] if rank == own else received[rank][0]
            for rank in range(group.size())
        ]
        return in_order(self.parts, pieces, 2).contiguous()

    def outside(self, tensor: Tensor, count: int, *, add: bool = False) -> Tensor:
        """Return [B, count, own positions, ...] from [B, heads of this rank, all positions, ...].

        Args:
            tensor: this rank's heads.
            count: all heads.
            add: sum what several ranks have of the same head, in float32 or wider, in the ranks'
                order; without it each head comes from one rank.
        """
        group = self.group
        if group is None:
            return tensor
        own, lengths = group.rank(), list(map(length_of, self.parts))
        pieces = out_of_order(self.parts, tensor, 2)
        others = [rank for rank in range(group.size()) if rank != own]
        rows, rest = lengths[own], tensor.shape[3:]
        received = exchange(
            group,
            {rank: [pieces[rank]] for rank in others},
            {
                rank: [
                    tensor.new_empty(
                        (tensor.shape[0], self.heads[rank][1] - self.heads[rank][0], rows, *rest)
                    )
                ]
                for rank in others
            },
        ).wait()
        shape = (tensor.shape[0], count, rows, *rest)
        dtype = wide(tensor) if add else tensor.dtype
        whole = tensor.new_zeros(shape, dtype=dtype)
        for rank in range(group.size()):
            piece = pieces[own] if rank == own else received[rank][0]
            target = whole[:, slice(*self.heads[rank])]
            if add:
                target += piece
            else:
                target.copy_(piece)
        return whole.to(tensor.dtype)


def wide(tensor: Tensor) -> torch.dtype:
    """Return the dtype that sums over ranks are taken in."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def divide_heads(
    count: int, kv_count: int, ranks: int
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Return the query heads and the key heads of each rank.

    Raises:
        ValueError: the heads cannot be divided so that each rank has whole groups of query heads,
            or a part of one.
    """
    each, group = count // ranks, count // kv_count
    if count % ranks or (each % group and group % each):
        raise ValueError(
            f"mesh: expected ranks that divide {count} query heads over {kv_count} key heads into "
            f"whole groups or parts of one, got {ranks}; use schedule='ring', or a smaller second "
            f"dimension of the mesh"
        )
    queries = tuple((rank * each, rank * each + each) for rank in range(ranks))
    keys = tuple((start // group, -(-stop // group)) for start, stop in queries)
    return queries, keys
