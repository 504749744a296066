"""The ranks of the demonstration: processes of this machine with a file as their store."""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from torchyard_attention.demo import Text
from torchyard_context_parallel.demo._training import Plan, Step, train_together

_TIMEOUT = timedelta(seconds=120)


def run_together(
    ranks: int, backend: str, plan: Plan, text: Text, tell: Callable[[Step], None]
) -> list[Step]:
    """Train on processes of their own, and return the first one's steps.

    Raises:
        torch.multiprocessing.ProcessRaisedException, ProcessExitedException: a rank failed.
    """
    threads = max(1, torch.get_num_threads() // ranks)
    with tempfile.TemporaryDirectory() as folder:
        steps: Any = get_context("spawn").SimpleQueue()
        given = (ranks, backend, threads, str(Path(folder, "meeting")), plan, text, steps)
        context = spawn(_rank, given, nprocs=ranks, join=False)  # type: ignore[no-untyped-call]
        done: list[Step] = []
        while not context.join(timeout=0.1):
            while not steps.empty():
                done.append(steps.get())
                tell(done[-1])
        while not steps.empty():
            done.append(steps.get())
            tell(done[-1])
    return done


def _rank(
    rank: int,
    ranks: int,
    backend: str,
    threads: int,
    meeting: str,
    plan: Plan,
    text: Text,
    steps: queue.SimpleQueue[Step],
) -> None:
    import torchyard_collectives  # noqa: F401  (registers its backend)

    torch.set_num_threads(threads)
    store = dist.FileStore(meeting, ranks)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=_TIMEOUT)
    try:
        train_together(plan, text, steps.put if rank == 0 else lambda step: None)
        # No rank leaves while another still reads from it.
        dist.barrier()
    finally:
        dist.destroy_process_group()
