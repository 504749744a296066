"""Planted faults, and what the analyser makes of the dumps: ``python faults.py``.

Each fault runs on real processes, forked from this one before it has any thread, so that torch is
imported once. ``--backend`` is any backend of torch.distributed. Exit status 1 if a fault is not
named right.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import torchyard_collectives  # noqa: F401  (registers its backend)
from torchyard_collectives.flight import Report, analyse, enable, read_folder
from torchyard_collectives.flight._dump.read import JOB, dump_name

__all__ = ["FAULTS", "plant"]

_CULPRIT: Final = 1
_STEPS: Final = 3
_WATCHED: Final = 1.0
_LONGEST: Final = 60.0


def _train(steps: int = _STEPS) -> torch.Tensor:
    values = torch.ones(4)
    for _ in range(steps):
        dist.all_reduce(values)
    return values


def _missing_rank(rank: int) -> None:
    if rank == _CULPRIT:
        return
    dist.all_reduce(torch.ones(4))


def _not_entered(rank: int) -> None:
    if rank == _CULPRIT:
        _load_batch()
    dist.all_reduce(torch.ones(4))


def _load_batch() -> None:
    time.sleep(60)


def _shape(rank: int) -> None:
    dist.all_reduce(torch.ones(4 if rank == _CULPRIT else 5))


def _dtype(rank: int) -> None:
    dtype = torch.int32 if rank == _CULPRIT else torch.float32
    dist.all_reduce(torch.ones(4, dtype=dtype))


def _order(rank: int) -> None:
    gradients = [torch.ones(4), torch.ones(8)]
    if rank == _CULPRIT:
        gradients.reverse()
    works = [dist.all_reduce(gradient, async_op=True) for gradient in gradients]
    for work in works:
        assert work is not None
        work.wait()


def _op(rank: int) -> None:
    values = torch.ones(4)
    if rank == _CULPRIT:
        dist.broadcast(values, src=0)
    else:
        dist.all_reduce(values)


def _branch(rank: int) -> None:
    loss = _train().mean() / 100 + (rank == _CULPRIT)
    if loss > 1:
        dist.all_reduce(torch.ones(4))
    _train(2)


def _straggler(rank: int) -> None:
    if rank == _CULPRIT:
        time.sleep(2 * _WATCHED)
    _train()


def _crash(rank: int) -> None:
    if rank == _CULPRIT:
        raise ValueError("a sample has no label")
    _train()


def _killed(rank: int) -> None:
    if rank == _CULPRIT:
        os.kill(os.getpid(), signal.SIGKILL)
    _train()


def _aborted(rank: int) -> None:
    if rank == _CULPRIT:
        os.abort()
    _train()


def _forgotten_group(rank: int) -> None:
    # The culprit is not in the group, and torch has it come all the same.
    if rank != _CULPRIT:
        dist.new_group([0, 2])
    _train()


# First the eight of a hang, then other ways to the same and what the first eight do not have.
FAULTS: Final[dict[str, tuple[Callable[[int], None], str]]] = {
    "missing rank": (_missing_rank, "missing rank"),
    "shape": (_shape, "shape mismatch"),
    "dtype": (_dtype, "dtype mismatch"),
    "order": (_order, "order mismatch"),
    "op": (_op, "op mismatch"),
    "branch": (_branch, "data-dependent branch"),
    "straggler": (_straggler, "straggler"),
    "crash": (_crash, "crash"),
    "crash by SIGKILL": (_killed, "crash"),
    "crash by abort": (_aborted, "crash"),
    "not entered": (_not_entered, "not entered"),
    "forgotten group": (_forgotten_group, "group mismatch"),
}


def _rank(fault: Callable[[int], None], rank: int, size: int, backend: str, folder: Path) -> None:
    """Be one rank of a job with a fault."""
    # The tracebacks of planted faults would bury the table.
    os.dup2(os.open(folder / f"stderr-of-{rank}.txt", os.O_CREAT | os.O_WRONLY), 2)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    enable(folder, timeout=_WATCHED, gather=1.0)
    store = FileStore(str(folder / "meeting"), size)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=_LONGEST)
    )
    _train()
    # What was dumped before was about processes that start at different times.
    (folder / f"planted-in-{rank}.mark").touch()
    fault(rank)


def plant(name: str, *, backend: str, size: int, folder: Path) -> Report:
    """Run a job with a fault until every rank that can has dumped, and return the verdict."""
    context = multiprocessing.get_context("fork")
    fault = FAULTS[name][0]
    processes = [
        context.Process(target=_rank, args=(fault, rank, size, backend, folder))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        # The straggler comes after the timeout and ends by itself; the others stay as they are.
        _wait(processes, folder, size, _LONGEST if fault is _straggler else _WATCHED / 2)
    finally:
        for process in processes:
            process.kill()
            process.join()
    dumps = read_folder(folder)
    return analyse(
        list(dumps.histories.values()),
        world_size=dumps.world_size or size,
        gone=dumps.gone,
        problems=dumps.problems,
    )


def _wait(processes: Sequence[BaseProcess], folder: Path, size: int, settle: float) -> None:
    """Wait until all have ended, or those that hang have dumped since the fault."""
    deadline = time.monotonic() + 4 * _LONGEST
    settled = 0.0
    while time.monotonic() < deadline and any(process.is_alive() for process in processes):
        time.sleep(0.05)
        dumped = _is_over(folder, size, [process.is_alive() for process in processes])
        settled = settled or (time.monotonic() if dumped else 0.0)
        if settled and time.monotonic() - settled > settle:
            return


def _is_over(folder: Path, size: int, alive: Sequence[bool]) -> bool:
    """Whether dumps were collected after every rank had begun with the fault."""
    planted = list(folder.glob("planted-in-*.mark"))
    if len(planted) < size:
        return False
    last = max(mark.stat().st_mtime_ns for mark in planted)
    # Who answers later than the collector waits for has a dump all the same.
    files = [folder / dump_name(rank) for rank, runs in enumerate(alive) if runs]
    return all(file.exists() and file.stat().st_mtime_ns > last for file in (folder / JOB, *files))


def main() -> int:
    """Plant every fault and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep the dumps in this folder")
    parser.add_argument("faults", nargs="*", default=list(FAULTS))
    arguments = parser.parse_args()
    wrong = 0
    for name in arguments.faults:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            if arguments.keep is not None:
                folder = arguments.keep / name.replace(" ", "-")
                folder.mkdir(parents=True)
            began = time.monotonic()
            report = plant(name, backend=arguments.backend, size=arguments.size, folder=folder)
            seconds = time.monotonic() - began
        first = report.findings[0] if report.findings else None
        said = f"{first.kind}, rank {', '.join(map(str, first.ranks))}" if first else "healthy"
        right = first is not None and first.kind == FAULTS[name][1] and _CULPRIT in first.ranks
        wrong += not right
        print(
            f"{arguments.backend:6} {name:17} {'right' if right else 'WRONG'}  {said:32} "
            f"{seconds:4.1f} s  {first.text if first else ''}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
