"""Compilations in another process, whose end by a signal is a fault of one kernel."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection

from torchyard_triton.compiled._figures import Figures

__all__ = ["Job", "compiled_apart"]


@dataclass(frozen=True, slots=True)
class Job:
    """What is compiled.

    Attributes:
        architecture, kernel, program: its names, as in :class:`Figures`.
    """

    architecture: str
    kernel: str
    program: str


_Compile = Callable[[Job], Figures]


def compiled_apart(jobs: Iterable[Job], compile: _Compile) -> Iterator[tuple[Job, Figures | str]]:
    """Yield each job with its figures, or with what went wrong, in order.

    One process compiles them one after another. LLVM and what it is built with end a process where
    an assertion fails; then the job has the signal's name, and another process does the rest.

    Args:
        jobs: what is compiled.
        compile: a function that a new process can import.

    Raises:
        RuntimeError: a process does not start.
    """
    worker: _Worker | None = None
    try:
        for job in jobs:
            worker = worker or _Worker(compile)
            found = worker.result(job)
            if found is None:
                yield job, worker.end()
                worker = None
            else:
                yield job, found
    finally:
        if worker is not None:
            worker.stop()


class _Worker:
    """A process that compiles what it is sent."""

    def __init__(self, compile: _Compile) -> None:
        # A fork would have this process's threads' locks, of torch and of LLVM.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_run_jobs, args=(theirs, compile), daemon=True)
        self._process.start()
        # With this copy open, the end of the process would not be the end of what it sends.
        theirs.close()
        if self._received() is None:
            raise RuntimeError(
                f"compiled_apart: expected a process that can import {compile}, got one that "
                f"{self.end()}; standard error has the reason"
            )

    def result(self, job: Job) -> Figures | str | None:
        """Return figures or an error's text; None where the process ended."""
        self._connection.send(job)
        return self._received()

    def _received(self) -> Figures | str | None:
        try:
            found: Figures | str = self._connection.recv()
        except (EOFError, ConnectionError):
            return None
        return found

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.terminate()
        self.end()

    def end(self) -> str:
        """Wait for the end of the process, and return how it ended."""
        self._connection.close()
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return f"ended with exit status {code}"
        return f"ended by {signal.Signals(-code).name}"


def _run_jobs(connection: Connection, compile: _Compile) -> None:
    """Compile each job that comes, until no more can."""
    connection.send("ready")
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            found: Figures | str = compile(job)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        connection.send(found)
