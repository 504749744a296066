"""Fresh interpreters: code of a law runs in a process that has imported nothing.

A plugin may have changed the process that the laws run in: its environment, its folder, its file
mode mask, the signals that it ignores. A child would inherit that as its own beginning and show
nothing. So programs are started by a process that began before any plugin was imported.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

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


class Starter:
    """A process that starts programs, as it was itself started: before any plugin was imported.

    It ends with the process that made it. Threads may ask it at once; their programs then run at
    once.

    Attributes:
        environ: the environment that it has, without every setting of torchyard.
    """

    def __init__(self) -> None:
        self.environ: Final = child_environ({})
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        atexit.register(self._process.kill)
        self._numbers = itertools.count()
        self._writing, self._reading = Lock(), Lock()
        self._answers: dict[int, Fresh] = {}

    def run(self, program: list[str], settings: Mapping[str, str | None], timeout: float) -> Fresh:
        """Have a program run to its end; see :func:`run_fresh`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        number = next(self._numbers)
        asked = {
            "number": number,
            "program": program,
            "settings": dict(settings),
            "timeout": timeout,
        }
        with contextlib.suppress(OSError), self._writing:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        while True:
            # Whoever reads may get another thread's answer, and leaves it for that thread.
            with self._reading:
                if number in self._answers:
                    return self._answers.pop(number)
                line = self._process.stdout.readline()
                if not line:
                    raise RuntimeError(
                        f"the process that starts fresh interpreters has ended with status "
                        f"{self._process.wait()}: the plugin that is certified may have ended it"
                    )
                answer = json.loads(line)
                self._answers[answer["number"]] = Fresh(**answer["fresh"])


_starter: Starter | None = None


def starter() -> Starter:
    """Return the process that starts programs; the first call, which is to come early, makes it."""
    global _starter
    if _starter is None:
        _starter = Starter()
    return _starter


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
    return starter().run(program, settings or {}, timeout)


def _run(program: list[str], settings: Mapping[str, str | None], timeout: float) -> Fresh:
    with tempfile.TemporaryDirectory(prefix="torchyard-fresh-") as folder:
        config = Path(folder, "config.toml")
        config.touch()
        environ = child_environ({"TORCHYARD_CONFIG": str(config), **settings})
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
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _start_programs() -> None:
    """Be the process that starts programs: one for each line of stdin."""
    printing = Lock()

    def answer(asked: dict[str, Any]) -> None:
        try:
            done = _run(asked["program"], asked["settings"], asked["timeout"])
        except BaseException:
            # Else the thread that asked would wait for ever; now it reads the end of the stream.
            traceback.print_exc()
            os._exit(1)
        line = json.dumps({"number": asked["number"], "fresh": asdict(done)})
        with printing:
            print(line, flush=True)

    with ThreadPoolExecutor() as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))


if __name__ == "__main__":
    _start_programs()
