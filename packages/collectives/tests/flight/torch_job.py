"""A job of two ranks with torch's own recorder: ``torch_job.py FOLDER``.

Rank 1 does not come to the last all_reduce. Each writes what torch's recorder holds, as torch's
pickle and as its JSON, since nothing writes a file for gloo.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

__all__ = ["main"]


def main() -> int:
    """Run both ranks; return 0 where they end well."""
    context = multiprocessing.get_context("fork")
    folder = Path(sys.argv[1])
    ranks = [context.Process(target=_be_rank, args=(rank, folder)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return max(abs(rank.exitcode or 0) for rank in ranks)


def _be_rank(rank: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=240),
    )
    pair = dist.new_group([0, 1])
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(2, 3), src=0, group=pair)
    store = dist.distributed_c10d._get_default_store()  # type: ignore[attr-defined]
    if rank == 0:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1.5))  # type: ignore[attr-defined]
        with contextlib.suppress(RuntimeError):
            dist.all_reduce(torch.ones(7))
        store.set("waited", "long enough")
    else:
        store.wait(["waited"])
    (folder / "pickle" / f"trace_{rank}").write_bytes(c10d._dump_fr_trace())  # type: ignore[attr-defined]
    (folder / "json" / f"trace_{rank}.json").write_bytes(c10d._dump_fr_trace_json())  # type: ignore[attr-defined]
    # Without the goodbyes of a group whose other side may have gone.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
