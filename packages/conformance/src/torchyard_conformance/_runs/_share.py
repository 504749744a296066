"""A share of a run's cases: a process of its own, which the plugin may crash."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from torchyard import child_environ
from torchyard_conformance._reports._result import LawResult
from torchyard_conformance._runs._events import Events, Progress, read_progress
from torchyard_conformance._runs._reproduction import reproduction
from torchyard_conformance._status import Status
from torchyard_conformance._subjects._fresh import end_group
from torchyard_conformance._subjects._slot import slot_holder
from torchyard_conformance._subjects._subject import Subject

# A case that takes longer hangs: the longest one of ours takes a twentieth of it.
_CASE_SECONDS: Final = 300.0
# Until the laws are collected, for which torch and the plugin may be imported.
_START_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05
_LAWS: Final = "torchyard_conformance._laws"
_LOG_LINES: Final = 30
# pytest's own: all passed, some failed, interrupted by the plugin's exit, nothing was left to run.
_ENDED: Final = (0, 1, 5)


class RunError(RuntimeError):
    """The laws could not be run at all."""


@dataclass(frozen=True, slots=True)
class Share:
    """Cases that one process tries after another.

    Attributes:
        subject: the plugin, and the part of it that is judged.
        profile: the profile's name.
        device: the device type asked for; empty: the plugin's.
        case: this law or ``law[case]`` alone; empty: all.
        part: ``number/count`` of what may be tried beside other processes, ``alone`` for what may
            not; empty: everything.
        threads: of each process's ops; 0: as torch chooses.
        stopped: once set, the process is ended and RunError is raised.
    """

    subject: Subject
    profile: str
    device: str = ""
    case: str = ""
    part: str = ""
    threads: int = 0
    stopped: Event = field(default_factory=Event)

    def results(self, folder: Path, watch: Callable[[Progress], None]) -> list[LawResult]:
        """Try the cases; return how each ended.

        Args:
            folder: an existing one of its own.
            watch: called again and again.

        Raises:
            RunError: the laws could not be collected; the message holds pytest's words.
        """
        (folder / "config.toml").touch()
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        file = folder / "results.jsonl"
        while True:
            before = len(read_progress(file).begun)
            ended, died = self._process(folder, file, watch)
            progress = read_progress(file)
            if progress.unfinished is not None:
                self._blame(file, *progress.unfinished, died)
                progress = read_progress(file)
                watch(progress)
            # A process that dies at its end has told everything; registration.unload is about that.
            if ended or progress.complete:
                return progress.results
            if len(progress.begun) == before:
                log = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
                first = f"the laws cannot be run: {died}; of a plugin that ends the process "
                first += "when it is loaded, --profile core shows more"
                raise RunError("\n".join([first, *log[-_LOG_LINES:]]))

    def _process(
        self, folder: Path, file: Path, watch: Callable[[Progress], None]
    ) -> tuple[bool, str]:
        """Run what has not begun; return whether that ended well, and how it ended else."""
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *self._arguments(folder, file)],
                env=child_environ(self._settings(folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            size, since, limit = _size(file), time.monotonic(), _START_SECONDS
            try:
                while process.poll() is None:
                    if self.stopped.wait(_LOOK_SECONDS):
                        raise RunError("the run was stopped")
                    if _size(file) != size:
                        size, since, limit = _size(file), time.monotonic(), _CASE_SECONDS
                        watch(read_progress(file))
                    if time.monotonic() - since > limit:
                        return False, f"it did not end within {limit:.0f} s"
            finally:
                end_group(process)
            watch(read_progress(file))
        if process.returncode in _ENDED:
            # A plugin that exits with one of pytest's own words leaves its case unfinished.
            unfinished = read_progress(file).unfinished
            return unfinished is None, f"the process ended with status {process.returncode}"
        return False, _death(process.returncode)

    def _blame(self, file: Path, law: str, case: str, died: str) -> None:
        """Write the failure of the case that took the process with it."""
        Events(file).result(
            LawResult(
                law=law,
                case=case,
                status=Status.FAIL,
                text=f"expected the law to end, {died} while it was tried",
                reproduce=reproduction(
                    self.subject, self.profile, self.device, f"{law}[{case}]" if case else law
                ),
                smallest=case,
            )
        )

    def _arguments(self, folder: Path, file: Path) -> list[str]:
        arguments = [
            *("--pyargs", _LAWS, "-c", str(folder / "pytest.ini"), "--rootdir", str(folder)),
            *("-p", "torchyard_conformance._pytest_plugin", "-p", "no:cacheprovider"),
            # Not those of a project in whose folder the environment lies, as .venv does.
            *("--noconftest", "--import-mode=importlib", "--tb=short", "-q"),
            f"--torchyard-plugin={self.subject.name}",
            f"--torchyard-profile={self.profile}",
            f"--torchyard-results={file}",
        ]
        if self.device:
            arguments.append(f"--torchyard-device={self.device}")
        if self.case:
            arguments.append(f"--torchyard-case={self.case}")
        if self.part:
            arguments.append(f"--torchyard-part={self.part}")
        if self.subject.only:
            arguments.append(f"--torchyard-implementation={','.join(self.subject.only)}")
        return arguments

    def _settings(self, folder: Path) -> dict[str, str | None]:
        """Return the fixed conditions of every certification."""
        return {
            "TORCHYARD_CONFIG": str(folder / "config.toml"),
            "TORCHYARD_PRIVATEUSE1": slot_holder(self.subject.plugin),
            **({"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": None,
            "PYTEST_PLUGINS": None,
        }


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0


def _death(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        name = str(-returncode)
        with contextlib.suppress(ValueError):
            name = signal.Signals(-returncode).name
        return f"the process was ended by {name}"
    return f"the process ended with status {returncode}"
