"""Run a gradient check in the existing group, or in new processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["launch_ranks"]


def launch_ranks(world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return ``function(*args)`` of every rank.

    Args:
        world_size: how many ranks. Where torch.distributed has a world of as many, this is called
            on each of them; otherwise new processes are started, on this machine and over gloo.
        function: importable by its module and name.
        *args: picklable.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() == world_size:
        results: list[Any] = [None] * world_size
        dist.all_gather_object(results, function(*args))
        return results
    with tempfile.TemporaryDirectory(prefix="torchyard-collectives-") as folder:
        processes: Any = torch.multiprocessing
        processes.spawn(_run, (world_size, folder, function, args), nprocs=world_size)
        return [torch.load(Path(folder, str(rank))) for rank in range(world_size)]


def _run(
    rank: int, world_size: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    stores: Any = dist
    store = stores.FileStore(f"{folder}/meeting", world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    try:
        torch.save(function(*args), Path(folder, str(rank)))
        # Nobody leaves while another still talks to it.
        dist.barrier()
    finally:
        dist.destroy_process_group()
