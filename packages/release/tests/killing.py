"""A command of the train in a process that dies at a chosen line of its journal."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["HOW", "die", "finish"]

# torn: in the middle of the write; after: when the line is on the disk, before anybody knows;
# full: the disk has no room for the line.
HOW: Final = ("torn", "after", "full")
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


def _run(root: Path, words: Sequence[str], at: int, how: str) -> int:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    process = context.Process(target=_command, args=(str(root), tuple(words), at, how))
    process.start()
    process.join(60)
    assert process.exitcode is not None, "the command hangs"
    return process.exitcode


def _command(root: str, words: tuple[str, ...], at: int, how: str) -> None:
    from torchyard_release import _journal
    from torchyard_release._cli import command

    write, count = _journal._write, 0

    def faulty(descriptor: int, line: bytes) -> None:
        nonlocal count
        count += 1
        if count == at and how == "full":
            os.write(descriptor, line[: len(line) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if count == at and how == "torn":
            os.write(descriptor, line[: len(line) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(descriptor, line)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    _journal._write = faulty
    # What it prints is not what is judged here.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    command(["--root", root, *words])
