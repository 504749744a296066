"""Handles of operations, as torch.distributed wants them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import torch
from torch.distributed import Work

__all__ = ["DONE", "DoneWork", "Worker"]

_GRACE_SECONDS: Final = 3e-4


def _done_future(results: list[torch.Tensor]) -> torch.futures.Future[Any]:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(results)
    return future


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


class PendingWork(Work):
    """Something that whoever waits for it does, or else a thread."""

    def __init__(
        self, body: Callable[[], None], results: list[torch.Tensor], worker: Worker
    ) -> None:
        super().__init__()
        self._body = body
        self._results = results
        self._worker = worker
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._future: torch.futures.Future[Any] | None = None

    def run(self) -> None:
        """Do it; for the worker."""
        try:
            self._body()
        except BaseException as error:  # it is raised where the work is waited for
            self._error = error
        with self._lock:
            self._ended.set()
            future = self._future
        del self._body
        if future is not None:
            self._complete(future)

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._results)
        else:
            future.set_exception(self._error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is done; the operation's own timeout bounds that.

        Raises:
            TimeoutError: the timeout given here passed before.
            SharedMemoryError: it failed.
        """
        limit = timeout.total_seconds() if timeout is not None else 0.0
        if limit <= 0:
            self._worker.help(self)
        elif not self._ended.wait(limit):
            raise TimeoutError(f"wait: expected the operation to end within {limit:g} s")
        if self._error is not None:
            raise self._error
        return True

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


class Worker:
    """Does one thing after another: in the threads that wait, and in one of its own.

    Most callers wait soon after they have started something. To hand it to another thread and back
    would cost them more than a small collective does, so the thread takes it after a grace.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: deque[PendingWork] = deque()
        self._turn = threading.Lock()
        self._wake = threading.Semaphore(0)
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: PendingWork | None = None
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether something is left to do."""
        if self._last is None:
            return False
        if self._last.is_completed():
            self._last = None
            return False
        return True

    def submit(self, body: Callable[[], None], results: list[torch.Tensor]) -> PendingWork:
        """Do something after all that was submitted before."""
        work = self._last = PendingWork(body, results, self)
        self._waiting.append(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._wake.release()
        return work

    def hurry(self) -> None:
        """Let the thread begin at once."""
        self._hurry.set()

    def help(self, work: PendingWork) -> None:
        """Do everything up to a work in the calling thread, or wait where it is being done."""
        while not work.is_completed():
            with self._turn:
                if not work.is_completed():
                    self._waiting.popleft().run()

    def stop(self) -> None:
        """End the thread once everything submitted is done, or has failed."""
        if self._thread is not None:
            self._stopping = True
            self._hurry.set()
            self._wake.release()
            self._thread.join()
            self._thread = None
            self._stopping = False

    def _serve(self) -> None:
        while True:
            self._wake.acquire()
            if self._waiting and not self._stopping:
                self._hurry.wait(_GRACE_SECONDS)
                self._hurry.clear()
            with self._turn:
                if self._waiting:
                    self._waiting.popleft().run()
                elif self._stopping:
                    return
