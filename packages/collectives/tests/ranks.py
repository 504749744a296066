"""``run_ranks``: call a function on every rank of a group of real processes.

The processes are kept from one call to the next. New ones are forks of two that have imported
torch, which takes seconds. What a function needs is imported in the processes by name: write it at
the top of a module, not inside of a test.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]

import torchyard_collectives  # noqa: F401  (registers its backend)

from .forks import Forks
from .placed import device_of_rank, placed

__all__ = ["RanksError", "default_store", "run_cases", "run_ranks"]

# How long the others have to report after a first rank failed, before they are ended.
_GRACE_SECONDS: Final = 30.0
# Neighbouring ranks come from processes of their own, as in a job: the hashes of texts differ.
_ORIGINS: Final = 2


class RanksError(AssertionError):
    """A rank raised, died or did not end in time; the message has a part for every rank.

    Attributes:
        reports: per rank what came of it: a traceback, or a line on how it ended.
    """

    def __init__(self, reports: list[str]) -> None:
        super().__init__("".join(f"\n[rank {rank}] {text}" for rank, text in enumerate(reports)))
        self.reports = reports


@dataclass(frozen=True, slots=True)
class _Case:
    """A call for a worker; the file of a group's store identifies the group."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    rank: int
    world_size: int
    backend: str
    device: str
    meeting: str
    timeout: float


class _Worker:
    """A process that runs cases one after another."""

    def __init__(self, origin: Forks, log: Path) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.log = log
        self.ready = False
        self._origin = origin
        self._process = origin.start(theirs, str(log))
        theirs.close()

    def wait_until_ready(self) -> None:
        """Wait until the process takes cases."""
        if not self.ready:
            self.ready = bool(self.pipe.recv())

    def exit_code(self) -> int:
        """Return how a process that has ended did."""
        code, self._process = self._origin.wait(self._process), 0
        return code

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            self.exit_code()
        self.pipe.close()

    def stack(self) -> str:
        """Return where the process is, by its own account."""
        if self._process:
            os.kill(self._process, signal.SIGUSR1)
        text, deadline = "", time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.2)
            before, text = text, self.log.read_text(encoding="utf-8")
            if text and text == before:
                break
        return text


class _Pool:
    """The kept workers; rank r of every group is worker r."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="torchyard-ranks-"))
        self.workers: list[_Worker] = []
        self.meeting = ""
        self.group: tuple[int, str, str] | None = None
        self.numbers = itertools.count()

    def run(
        self,
        case: Callable[[int, str], _Case],
        group: tuple[int, str, str],
        timeout: float,
        grace: float,
    ) -> Any:
        """Run one case on the first ``group[0]`` workers."""
        while len(self.workers) < group[0]:
            origin = _origin(len(self.workers))
            self.workers.append(_Worker(origin, self.folder / f"worker-{next(self.numbers)}.log"))
        if self.group != group:
            self.meeting, self.group = str(self.folder / f"store-{next(self.numbers)}"), group
        workers = self.workers[: group[0]]
        try:
            for worker in workers:
                worker.wait_until_ready()
            for rank, worker in enumerate(workers):
                # One that died since has a closed pipe; the reports will say so.
                with contextlib.suppress(OSError):
                    _send(worker.pipe, case(rank, self.meeting))
            reports = _collect(workers, timeout, grace)
        except BaseException:
            self.end_workers()
            raise
        if all(ok for ok, _ in reports):
            return [result for _, result in reports]
        # A rank that failed may have left the others in the middle of a collective.
        self.end_workers()
        raise RanksError([text if not ok else "returned" for ok, text in reports])

    def end_workers(self) -> None:
        """End every worker; the next case starts new ones."""
        for worker in self.workers:
            worker.end()
        self.workers, self.group = [], None

    def close(self) -> None:
        """End the pool and remove what it wrote."""
        self.end_workers()
        shutil.rmtree(self.folder, ignore_errors=True)


def _collect(workers: list[_Worker], timeout: float, grace: float) -> list[tuple[bool, Any]]:
    """Return (True, result) or (False, text) of each worker, within the timeout."""
    reports: dict[int, tuple[bool, Any]] = {}
    deadline = time.monotonic() + timeout
    while len(reports) < len(workers) and (left := deadline - time.monotonic()) > 0:
        open_ones = {w.pipe: r for r, w in enumerate(workers) if r not in reports}
        for pipe in wait(list(open_ones), left):
            assert isinstance(pipe, Connection)
            rank = open_ones[pipe]
            try:
                reports[rank] = pickle.loads(pipe.recv_bytes())
            except (EOFError, OSError):
                code = workers[rank].exit_code()
                reports[rank] = (False, f"died with exit code {code}")
            if not reports[rank][0]:
                deadline = min(deadline, time.monotonic() + grace)
    late = f"did not end within {timeout:g} s, or {grace:g} s after another failed; was at"
    return [
        reports[rank] if rank in reports else (False, f"{late}\n{worker.stack()}")
        for rank, worker in enumerate(workers)
    ]


def _send(pipe: Connection, item: object) -> None:
    """Send by value: the pipe would share a tensor's memory, which ends with its owner."""
    pipe.send_bytes(pickle.dumps(item))


def run_cases(descriptor: int, log: str) -> None:
    """Run cases until the other end of the pipe is closed.

    Args:
        descriptor: this end of the pipe.
        log: a file for where the process is, which it writes when it gets SIGUSR1.
    """
    pipe = Connection(descriptor)
    torch.set_num_threads(1)
    stacks = Path(log).open("w", encoding="utf-8")  # noqa: SIM115  (open for as long as this runs)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=False)
    pipe.send(True)
    meeting = ""
    while True:
        try:
            case: _Case = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        except BaseException:
            _send(pipe, (False, traceback.format_exc()))
            continue
        try:
            device = device_of_rank(case.device, case.rank)
            if case.meeting != meeting:
                if dist.is_initialized():
                    dist.destroy_process_group()
                dist.init_process_group(
                    case.backend,
                    store=FileStore(case.meeting, case.world_size),
                    rank=case.rank,
                    world_size=case.world_size,
                    timeout=timedelta(seconds=case.timeout),
                    # Which device a rank has must be known before its first collective.
                    device_id=None if device.type == "cpu" else device,
                )
                meeting = case.meeting
            if device.type == "cpu":
                report = (True, case.function(*case.args))
            else:
                result = case.function(*placed(case.args, device))
                report = (True, placed(result, torch.device("cpu")))
        except BaseException:
            report = (False, traceback.format_exc())
        sys.stdout.flush()
        try:
            _send(pipe, report)
        except Exception:  # what cannot be pickled
            _send(pipe, (False, traceback.format_exc()))


def default_store() -> Store:
    """Return where ranks tell one another that something is over, beside all collectives."""
    return dist.distributed_c10d._get_default_store()


_pools: list[_Pool] = []
_origins: list[Forks] = []


def _origin(rank: int) -> Forks:
    """Return what a rank's process is forked from."""
    # pytest puts every test's name there.
    environ = {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"}
    if _origins and _origins[0].environ != environ:
        # What torch read of the environment when it was imported would be another test's. Those
        # from before stay for the processes that they were forked into.
        _origins.clear()
    while len(_origins) < _ORIGINS:
        _origins.append(Forks(environ))
    return _origins[rank % _ORIGINS]


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *args: Any,
    backend: str = "gloo",
    device: str = "cpu",
    timeout: float = 240,
    grace: float = _GRACE_SECONDS,
    fresh: bool = False,
) -> list[Any]:
    """Call ``function(*args)`` in each process of a group, and return the results by rank.

    Inside of it ``torch.distributed`` is initialised: the world is the group. The function and its
    arguments and result are pickled; a function is found by its module and name.

    Args:
        world_size: how many processes; on this machine alone, over loopback.
        function: called on every rank.
        *args: its arguments, the same on every rank.
        backend: of the group.
        device: torch device type: each rank has one of these devices to itself, its current one;
            tensors among the arguments are on it, and those of the result come back on the CPU.
        timeout: in seconds: for the call, once the processes are there, and of the group's
            collectives.
        grace: seconds that the others have to return once a rank has failed.
        fresh: whether to use processes that nothing ran in before, and end them afterwards: for
            functions that leave something behind, or end their process.

    Raises:
        RanksError: a rank raised, died, or did not return in time. All of the processes are ended.
    """

    def case(rank: int, meeting: str) -> _Case:
        return _Case(function, args, rank, world_size, backend, device, meeting, timeout)

    if fresh:
        pool = _Pool()
        try:
            return list(pool.run(case, (world_size, backend, device), timeout, grace))
        finally:
            pool.close()
    if not _pools:
        _pools.append(_Pool())
        atexit.register(_pools[0].close)
    return list(_pools[0].run(case, (world_size, backend, device), timeout, grace))
