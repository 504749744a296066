"""Work handles, as torch.distributed returns them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import Work

from torchyard_collectives.shm._errors import WaitTimeoutError
from torchyard_collectives.shm._group.uncompiled import eager

__all__ = ["DONE", "DoneWork", "PendingWork"]


class Doer(Protocol):
    """What does operations: see :class:`~torchyard_collectives.shm._group.worker.Worker`."""

    def help(self, work: PendingWork) -> None:
        """Do everything up to a work in the calling thread."""
        ...

    def hurry(self) -> None:
        """Let a thread begin at once."""
        ...


def _done_future(results: list[torch.Tensor]) -> torch.futures.Future[Any]:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(results)
    return future


@eager
class DoneWork(Work):
    """Something that has happened."""

    def __init__(self, results: list[torch.Tensor], source: int = -1) -> None:
        super().__init__()
        self._results = results
        self._source = source

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> None:
        """Return None."""

    def synchronize(self) -> None:
        """Return at once."""

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that were written."""
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a completed future of the tensors."""
        return _done_future(self._results)

    def source_rank(self) -> int:
        """Return whom a receive heard."""
        return self._source

    _source_rank = source_rank


# What a call returns whose caller only waits.
DONE = DoneWork([])


@eager
class PendingWork(Work):
    """Something that whoever waits for it does, or else a thread."""

    def __init__(self, body: Callable[[], None], results: list[torch.Tensor], worker: Doer) -> None:
        super().__init__()
        self._body = body
        self._results = results
        self._worker = worker
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._future: torch.futures.Future[Any] | None = None
        # The future, where somebody asked for it before the end.
        self._owed: torch.futures.Future[Any] | None = None

    def run(self) -> None:
        """Do it; for the worker."""
        try:
            self._body()
        except BaseException as error:  # it is raised where the work is waited for
            self._error = error
        del self._body
        with self._lock:
            self._owed = self._future
            self._ended.set()

    def told(self) -> Callable[[], None] | None:
        """Return what completes the future, with its callbacks; for the worker, after the end."""
        owed = self._owed
        return None if owed is None else lambda: self._complete(owed)

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done; the operation's own timeout bounds that.

        Raises:
            WaitTimeoutError: the timeout given here passed before; the operation goes on.
            SharedMemoryError: it failed.
        """
        limit = timeout.total_seconds() if timeout is not None else 0.0
        if limit <= 0:
            self._worker.help(self)
        else:
            self._worker.hurry()
            if not self._ended.wait(limit):
                raise WaitTimeoutError(
                    f"wait: expected the operation to end within {limit:g} s; it goes on, wait "
                    "again or give a longer timeout"
                )
        if self._error is None:
            if self._owed is not None:
                # Another thread completes it; its callbacks run there, and may run on after this.
                self._owed.wait()
            return True
        raise self._error

    def synchronize(self) -> None:
        """Wait until it is done."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done, or failed."""
        return self._ended.is_set()

    def is_success(self) -> bool:
        """Whether it is done."""
        return self._ended.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """Return why it failed."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that are written."""
        return self._results

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the tensors."""
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                if self._ended.is_set():
                    self._complete(self._future)
        # Whoever waits for a future cannot help.
        self._worker.hurry()
        return self._future
