"""Tensors sent from rank to rank: point to point, which any backend supports for any sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Pending:
    """Sends and receives on their way.

    Attributes:
        received: what :meth:`wait` fills, by rank.
    """

    received: dict[int, list[Tensor]]
    works: list[dist.Work]
    # Kept until they have left.
    sent: list[Tensor]

    def wait(self) -> dict[int, list[Tensor]]:
        """Return what came, by the rank that it came from."""
        for work in self.works:
            work.wait()
        return self.received


def exchange(
    group: dist.ProcessGroup,
    sends: Mapping[int, Sequence[Tensor]],
    receives: Mapping[int, Sequence[Tensor]],
) -> Pending:
    """Begin to send and to receive.

    Args:
        group: who takes part; ranks below are ranks in it. Every send needs its receive.
        sends: tensors for each rank.
        receives: empty tensors to be filled from each rank, in the order of its sends.
    """
    operations = []
    leaving = []
    # Lower ranks first on both sides, so that no two ranks wait for one another.
    for rank in sorted({*sends, *receives}):
        peer = dist.get_global_rank(group, rank)
        for tensor in sends.get(rank, ()):
            leaving.append(tensor.contiguous())
            if tensor.numel():
                operations.append(dist.P2POp(dist.isend, leaving[-1], peer, group))
        for tensor in receives.get(rank, ()):
            if tensor.numel():
                operations.append(dist.P2POp(dist.irecv, tensor, peer, group))
    works = dist.batch_isend_irecv(operations) if operations else []
    return Pending({rank: list(tensors) for rank, tensors in receives.items()}, works, leaving)


def all_numbers(group: dist.ProcessGroup, own: Sequence[int], device: torch.device) -> list[int]:
    """Return every rank's numbers, in the ranks' order; as many from each."""
    mine = torch.tensor(own, dtype=torch.int64, device=device)
    numbers = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(numbers, mine, group=group)
    return [number for tensor in numbers for number in tensor.tolist()]


def all_parts(
    group: dist.ProcessGroup, own: Tensor, lengths: Sequence[int], dim: int
) -> list[Tensor]:
    """Return every rank's tensor; they differ in one dimension's length alone."""
    rank = group.rank()
    shapes = [(*own.shape[:dim], length, *own.shape[dim + 1 :]) for length in lengths]
    others = [peer for peer in range(group.size()) if peer != rank]
    pending = exchange(
        group,
        {peer: [own] for peer in others},
        {peer: [own.new_empty(shapes[peer])] for peer in others},
    )
    received = pending.wait()
    return [own if peer == rank else received[peer][0] for peer in range(group.size())]
