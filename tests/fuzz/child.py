"""Makes trials in a child process, so that one that ends the process or hangs costs no other."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from tests.fuzz.harness import Outcome, Trial, tried

__all__ = ["outcomes"]

# Bytes of memory that calls may take: one that takes the machine's ends other processes too.
_MEMORY = 4 << 30


def outcomes(trials: Sequence[Trial], prepare: Callable[[], None]) -> Iterator[Outcome]:
    """Return what came of each trial; ``crash`` where it ended its process.

    Args:
        prepare: called in each child before its first trial.
    """
    done = 0
    while done < len(trials):
        reader, writer = os.pipe()
        folder = tempfile.mkdtemp()
        child = os.fork()
        if not child:
            os.close(reader)
            _make(trials[done:], prepare, writer, folder)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                yield Outcome(*json.loads(line))
                done += 1
        _, status = os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
        if status:
            yield Outcome("crash", f"its process ended with {os.waitstatus_to_exitcode(status)}")
            done += 1


def _make(trials: Sequence[Trial], prepare: Callable[[], None], writer: int, folder: str) -> None:
    """Make trials, write a line of each and end this process."""
    status = 1
    try:
        torch.set_num_threads(1)
        # What is taken for a path is written here.
        os.chdir(folder)
        _limit_memory()
        # Warnings and notices of a few thousand calls tell nobody anything.
        warnings.simplefilter("ignore")
        os.environ["TORCHYARD_NOTICES"] = "off"
        prepare()
        with os.fdopen(writer, "w") as lines:
            for trial in trials:
                outcome = tried(trial)
                lines.write(json.dumps([outcome.kind, outcome.text]) + "\n")
                lines.flush()
        status = 0
    finally:
        os._exit(status)


def _limit_memory() -> None:
    """Let calls take so much beside what the parent has, whose pages a child has too."""
    pages = Path("/proc/self/statm")
    # A sanitizer reserves terabytes that it never touches.
    if pages.exists() and "asan" not in os.environ.get("LD_PRELOAD", ""):
        data = int(pages.read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (data + _MEMORY, data + _MEMORY))
