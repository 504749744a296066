"""Run started operations one after another, and the callbacks of their futures."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import torch

from torchyard_collectives.shm._errors import ForkedProcessError, SharedMemoryError
from torchyard_collectives.shm._group.work import PendingWork

__all__ = ["Worker"]

_GRACE_SECONDS: Final = 3e-4
_T = TypeVar("_T")
# Threads that stay when there is nothing to do: one for operations, one for callbacks.
_SPARE: Final = 2


class Worker:
    """Does one operation after another: in the threads that wait, and in threads of its own.

    Most callers wait soon after they have started something. To hand it to another thread and back
    would cost them more than a small collective does, so a thread takes it after a grace.

    Callbacks of futures run outside of the order of operations, and never in a thread that waits:
    one that starts another operation and waits for it finds a thread that does it.

    Args:
        name: of the threads.
        seconds: how long the end of the threads is waited for.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._pid = os.getpid()
        # Reentrant so that a call in a signal handler raises instead of blocking.
        self._turn = threading.RLock()
        self._owner = 0
        self._last: PendingWork | None = None
        self._hurry = threading.Event()
        self._waiting: deque[PendingWork] = deque()
        # What follows is guarded by the condition.
        self._changed = threading.Condition(threading.Lock())
        self._tasks: deque[Callable[[], None]] = deque()
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._serving = False
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether an operation is left to do."""
        if self._last is None:
            return False
        if self._last.is_completed():
            self._last = None
            return False
        return True

    def run(self, body: Callable[[], None]) -> None:
        """Do something in this thread, after all that was submitted before."""
        if self.busy:
            self.submit(body, []).wait()
        else:
            self._in_turn(body)

    def submit(self, body: Callable[[], None], results: list[torch.Tensor]) -> PendingWork:
        """Do something after all that was submitted before."""
        self._check_process()
        work = self._last = PendingWork(body, results, self)
        self._waiting.append(work)
        if not self._serving:
            with self._changed:
                self._provide_threads()
        return work

    def give(self, task: Callable[[], None]) -> None:
        """Do something at once, in a thread of its own and beside the operations."""
        self._check_process()
        with self._changed:
            self._tasks.append(task)
            self._provide_threads()

    def hurry(self) -> None:
        """Let a thread begin with the operations at once."""
        self._check_process()
        self._hurry.set()

    def help(self, work: PendingWork) -> None:
        """Do everything up to a work in the calling thread, or wait where it is being done."""

        def next_one() -> PendingWork | None:
            return None if work.is_completed() else self._run_next()

        while not work.is_completed():
            done = self._in_turn(next_one)
            if done is not None and (told := done.told()) is not None:
                self.give(told)

    def stop(self) -> None:
        """End the threads once everything submitted is done, or has failed."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        self._hurry.set()
        # In the middle of an operation, as in a signal handler, the others wait for this thread.
        if self._owner != threading.get_ident():
            deadline = time.monotonic() + self._seconds
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._stopping = False

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                "shm: this process was forked from a rank; call collectives in the process that "
                "made the group"
            )

    def _in_turn(self, body: Callable[[], _T]) -> _T:
        """Do something while no other thread does; each ends within an operation's time."""
        if not self._turn.acquire(blocking=False):
            self._check_process()
            self._turn.acquire()
        try:
            if self._owner != 0:
                raise SharedMemoryError(
                    "shm: a collective was called inside of another one of its group, in one "
                    "thread, as a signal handler may; call it after that one, or on another group"
                )
            self._owner = threading.get_ident()
            try:
                return body()
            finally:
                self._owner = 0
        finally:
            self._turn.release()

    def _run_next(self) -> PendingWork | None:
        if not self._waiting:
            return None
        work = self._waiting.popleft()
        work.run()
        return work

    # The threads.

    def _provide_threads(self) -> None:
        """See to it that as many threads are idle as there are things to begin."""
        needed = len(self._tasks) + (bool(self._waiting) and not self._serving)
        while self._idle < needed:
            self._idle += 1
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._threads.add(thread)
            thread.start()
        if needed:
            self._changed.notify(needed)

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task()
            with self._changed:
                self._idle += 1

    def _next(self) -> Callable[[], None] | None:
        """Return what this idle thread is to do; None where it is to end."""
        with self._changed:
            while True:
                if self._tasks:
                    self._idle -= 1
                    return self._tasks.popleft()
                if self._waiting and not self._serving:
                    self._idle -= 1
                    self._serving = True
                    return self._operate
                if self._stopping or self._idle > _SPARE:
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait()

    def _operate(self) -> None:
        """Do operations until none is left, or one has a future: another thread goes on then."""
        told = None
        try:
            while self._waiting and told is None:
                if not self._stopping:
                    self._hurry.wait(_GRACE_SECONDS)
                    self._hurry.clear()
                done = self._in_turn(self._run_next)
                told = None if done is None else done.told()
        finally:
            with self._changed:
                self._serving = False
                self._provide_threads()
        if told is not None:
            told()
