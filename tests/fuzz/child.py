"""Makes trials in a child process, so that one that ends the process or hangs costs no other."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from tests.fuzz.harness import Outcome, Trial, tried

__all__ = ["outcomes"]

# Bytes of memory that a call may take: one that takes the machine's ends other processes too.
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
        if "asan" not in os.environ.get("LD_PRELOAD", ""):
            # A sanitizer reserves terabytes that it never touches.
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        # What is shown once goes to where the parent's test was captured, which may be closed.
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
