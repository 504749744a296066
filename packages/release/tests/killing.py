"""A command of the train in a process that dies at a chosen line of its journal."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

__all__ = ["HOW", "WHEN", "die", "ended", "finish", "kill_at", "start"]

# torn: in the middle of the write; after: when the line is on the disk, before anybody knows;
# full: the disk has no room for the line.
HOW: Final = ("torn", "after", "full")
WHEN: Final = ("before", "after")
_PRELOAD: Final = [
    *("click", "twine.settings", "pypi_simple", "securesystemslib.dsse", "jinja2", "rich.console"),
    *("torchyard_release._cli._publish", "torchyard_release._cli._sign"),
]


def die(root: Path, words: Sequence[str], *, at: int, how: str) -> int:
    """Run a command, end it at a line, and return its exit status; -9 where it was killed."""
    return _run(root, words, at, how)


def finish(root: Path, words: Sequence[str]) -> int:
    """Run a command to its end, in a process of its own, and return its exit status."""
    return _run(root, words, 0, "")


def kill_at(root: Path, words: Sequence[str], *, at: int, when: str) -> int:
    """Start a command, kill it from outside before or after it writes a line; its exit status.

    It is 0 where the command came to its end without that many lines.
    """
    here, there = multiprocessing.Pipe()
    process = start(root, words, at=at, how=f"stop {when}", pipe=there)
    there.close()
    try:
        # Until it is at the line, or has ended and left the pipe.
        here.recv()
        process.kill()
    except EOFError:
        pass
    return ended(process)


def start(
    root: Path, words: Sequence[str], *, at: int = 0, how: str = "", pipe: object = None
) -> BaseProcess:
    """Start a command in a process of its own, and return the process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    process = context.Process(target=_command, args=(str(root), tuple(words), at, how, pipe))
    process.start()
    return process


def ended(process: BaseProcess) -> int:
    """Wait for a command's end and return its exit status."""
    process.join(300)
    assert process.exitcode is not None, "the command hangs"
    return process.exitcode


def _run(root: Path, words: Sequence[str], at: int, how: str) -> int:
    return ended(start(root, words, at=at, how=how))


def _command(root: str, words: tuple[str, ...], at: int, how: str, pipe: Any) -> None:
    from torchyard_release._cli import command
    from torchyard_release._records import _journal

    write, count = _journal._write, 0

    def faulty(descriptor: int, line: bytes) -> None:
        nonlocal count
        count += 1
        if count == at and how == "stop before":
            _stand_still(pipe)
        if count == at and how == "full":
            os.write(descriptor, line[: len(line) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if count == at and how == "torn":
            os.write(descriptor, line[: len(line) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(descriptor, line)
        if count == at and how == "stop after":
            _stand_still(pipe)
        if count == at and how != "wait":
            os.kill(os.getpid(), signal.SIGKILL)

    if how == "wait":
        pipe.recv()
    _journal._write = faulty
    # What it prints is not what is judged here.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    command(["--root", root, *words])


def _stand_still(pipe: Any) -> None:
    """Tell whoever started it that the command is at its line, and wait to be killed."""
    pipe.send("here")
    while True:
        signal.pause()
