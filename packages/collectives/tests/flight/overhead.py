"""What recording costs a collective: ``python overhead.py [--backend gloo] [--size 2]``.

Blocks of calls with the recorder on and off take turns in the same processes; the figure is the
difference of the medians, in microseconds per call. One process (--size 1) shows it without the
noise of waiting for others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import torchyard_collectives  # noqa: F401  (registers its backend)
from torchyard_collectives.flight import disable, enable

__all__ = ["measure"]

_TURNS: Final = 15
_CALLS: Final = 300


def _all_reduce(x: torch.Tensor) -> None:
    dist.all_reduce(x)


def _asynchronous(x: torch.Tensor) -> None:
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()


_CASES: Final[dict[str, Callable[[torch.Tensor], None]]] = {
    "all_reduce of 4 B": _all_reduce,
    "all_reduce of 4 B, async_op": _asynchronous,
    "broadcast of 4 B": lambda x: dist.broadcast(x, src=0),
    "barrier": lambda x: dist.barrier(),
}


def _block(case: Callable[[torch.Tensor], None], x: torch.Tensor) -> float:
    dist.barrier()
    began = time.perf_counter()
    for _ in range(_CALLS):
        case(x)
    return (time.perf_counter() - began) / _CALLS * 1e6


def _rank(rank: int, size: int, backend: str, folder: Path, results: object) -> None:
    torch.set_num_threads(1)
    store = FileStore(str(folder / "meeting"), size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    found = {}
    for name, case in _CASES.items():
        x = torch.ones(1)
        times: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(_TURNS):
            for recorded in (True, False):
                if recorded:
                    enable(folder / "dumps")
                _block(case, x)
                times[recorded].append(_block(case, x))
                disable()
        found[name] = {key: statistics.median(values) for key, values in times.items()}
    if rank == 0:
        results.put(found)  # type: ignore[attr-defined]
    dist.barrier()
    dist.destroy_process_group()


def measure(backend: str, size: int) -> dict[str, dict[bool, float]]:
    """Return medians per case in microseconds, recorded (True) and bare (False)."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as scratch:
        ranks = [
            context.Process(target=_rank, args=(rank, size, backend, Path(scratch), results))
            for rank in range(size)
        ]
        for one in ranks:
            one.start()
        found: dict[str, dict[bool, float]] = results.get()
        for one in ranks:
            one.join()
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--size", type=int, default=2)
    arguments = parser.parse_args()
    for name, medians in measure(arguments.backend, arguments.size).items():
        extra = medians[True] - medians[False]
        print(
            f"{arguments.backend} x {arguments.size}  {name:28} bare {medians[False]:7.1f} us  "
            f"recorded {medians[True]:7.1f} us  recording {extra:5.1f} us"
        )


if __name__ == "__main__":
    main()
