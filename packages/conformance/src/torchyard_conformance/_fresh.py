"""Fresh interpreters: code of a law run where nothing was imported before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torchyard import child_environ

_TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Fresh:
    """What became of an interpreter.

    Attributes:
        returncode: its exit status; negative: the signal that ended it; None: it was still running
            at the end of its time, and was ended.
        stdout: what it wrote there, by whatever means.
        stderr: likewise.
        seconds: how long it ran.
    """

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float


def run_fresh(
    program: list[str],
    *,
    settings: Mapping[str, str | None] | None = None,
    timeout: float = _TIMEOUT_SECONDS,
) -> Fresh:
    """Run a program of this interpreter in a process of its own.

    No setting of torchyard reaches it but those given here, those of a configuration file neither.

    Args:
        program: the interpreter's arguments: ``["-c", code]``.
        settings: variables of the environment to set, or to remove where the value is None.
        timeout: seconds after which it and its children are ended.
    """
    with tempfile.TemporaryDirectory(prefix="torchyard-fresh-") as folder:
        config = Path(folder, "config.toml")
        config.touch()
        environ = child_environ({"TORCHYARD_CONFIG": str(config), **(settings or {})})
        start = time.perf_counter()
        # Files instead of pipes: a grandchild that lives on keeps a pipe open.
        with open(Path(folder, "out"), "w+b") as out, open(Path(folder, "err"), "w+b") as err:
            process = subprocess.Popen(
                [sys.executable, *program],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            returncode: int | None = None
            try:
                returncode = process.wait(timeout)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end_group(process)
            seconds = time.perf_counter() - start
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
    return Fresh(returncode, texts[0], texts[1], seconds)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and everything that it started and left."""
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()
