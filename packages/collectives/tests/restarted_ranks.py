"""A program for torchrun: rank 1 ends once without a word, and the restarted ranks compute."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import torchyard_collectives as tc
from torchyard_collectives import flight


def main(mark: Path, backend: str) -> None:
    """Run one rank.

    Args:
        mark: a file that is there once rank 1 has ended; the other files' names begin with it.
        backend: of the group.
    """
    torch.set_num_threads(1)
    flight.enable(f"{mark}-flight")
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    everybody = dist.new_group(list(range(size)))
    dist.all_reduce(torch.ones(3), group=everybody)
    dist.all_reduce(torch.ones(3))
    if rank == 1 and not mark.exists():
        mark.touch()
        os._exit(3)
    total = torch.full((4,), float(rank + 1))
    dist.all_reduce(total)
    rows = tc.all_gather(torch.full((2,), float(rank)), group=everybody, grad="sum")
    from torchyard_context_parallel import Sharding, context_parallel_attention

    whole = torch.randn(1, 2, 8 * size, 4, generator=torch.Generator().manual_seed(0))
    dealt = Sharding.head_tail(8 * size, size)
    part = dealt.take(whole, rank, 2)
    out = context_parallel_attention(part, part, part, mesh=everybody, sharding=dealt)
    wanted = torch.nn.functional.scaled_dot_product_attention(whole, whole, whole)
    torch.testing.assert_close(out, dealt.take(wanted, rank, 2), rtol=1e-4, atol=1e-5)
    results = [*total.tolist(), *rows.tolist()]
    Path(f"{mark}-{rank}").write_text(" ".join(map(str, results)), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
