"""``Forks``: processes that begin in milliseconds, as forks of one that has imported torch.

The one they are forked from has no thread but its main one, makes no group and runs no test.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Final

__all__ = ["Forks"]

_ENVIRONMENT: Final = {
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
}


class Forks:
    """A process that is there to be forked; it ends with this one.

    Attributes:
        environ: the environment that it was started in.
    """

    def __init__(self, environ: dict[str, str]) -> None:
        self._control, theirs = Pipe()
        self.environ = environ
        # Not through multiprocessing, which would import this process's main module over there.
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import _fork_on_request; "
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program + f"_fork_on_request({theirs.fileno()})"],
            env={**environ, **_ENVIRONMENT},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()

    def start(self, pipe: Connection, log: str) -> int:
        """Start a process that runs cases from the other end of a pipe; return its number."""
        self._control.send((log, 0))
        send_handle(self._control, pipe.fileno(), self._process.pid)
        return int(self._control.recv())

    def wait(self, process: int) -> int:
        """Wait for a process to end; return its exit code, which is below zero for a signal."""
        self._control.send(("", process))
        return int(self._control.recv())


def _fork_on_request(descriptor: int) -> None:
    """Fork on request, and be a fork where this is one."""
    # What most modules of tests import, beside torch.
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401

    from packages.collectives.tests.ranks import run_cases

    control = Connection(descriptor)
    while True:
        try:
            log, ended = control.recv()
        except EOFError:
            return
        if ended:
            control.send(os.waitstatus_to_exitcode(os.waitpid(ended, 0)[1]))
            continue
        pipe = recv_handle(control)
        process = os.fork()
        if not process:
            control.close()
            run_cases(pipe, log)
            return
        os.close(pipe)
        # Nobody is there to hear of it where the tests have ended meanwhile.
        with contextlib.suppress(BrokenPipeError):
            control.send(process)
