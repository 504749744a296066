"""The folder where dumps go."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from torchyard import restart_count
from torchyard_collectives.flight._dump.read import JOB, RESTART, dump_name, read_dump
from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._history import RankHistory

if sys.platform != "win32":
    import fcntl

__all__ = ["REQUEST", "Box"]

REQUEST: Final = "request"
_LONGEST_LOCK: Final = 2.0


class Box:
    """A folder of dumps as one rank writes it; every file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        # Dumps of before a restart stay beside those of after it.
        count = restart_count()
        self.folder = (
            folder.absolute() / RESTART.format(count=count) if count else folder.absolute()
        )
        self._seen = self._asked()

    def put(self, rank: int, text: str) -> Path:
        """Write this process's own dump."""
        with self._alone():
            return self._write(dump_name(rank), text)

    def collect(self, history: RankHistory, text: str) -> None:
        """Write the dump of another rank, unless its process has left a newer one here itself."""
        with self._alone():
            if not self._holds_newer(history):
                self._write(dump_name(history.rank), text)

    def _holds_newer(self, history: RankHistory) -> bool:
        try:
            here = read_dump(self.folder / dump_name(history.rank))
        except (OSError, FlightDumpError):
            return False
        same = (here.host, here.pid) == (history.host, history.pid)
        return same and (here.dumped or 0) > (history.dumped or 0)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process at a time write dumps, so that a rank's newest is the one that stays."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if sys.platform == "win32":
            # It locks no folder.
            yield
        else:
            with _lock(self.folder):
                yield

    def put_job(self, world_size: int, reason: str, gone: Mapping[int, str]) -> None:
        """Write what the collector knows of the job and of ranks without a dump."""
        rows = [{"rank": rank, "text": text} for rank, text in sorted(gone.items())]
        self._write(JOB, json.dumps({"world_size": world_size, "reason": reason, "gone": rows}))

    def requested(self) -> bool:
        """Whether somebody has asked for dumps by touching the file ``request`` since last time."""
        asked = self._asked()
        found = asked > self._seen
        self._seen = max(asked, self._seen)
        return found

    def ask(self) -> None:
        """Ask the ranks that watch this folder for dumps."""
        self._write(REQUEST, "")

    def _asked(self) -> int:
        try:
            return (self.folder / REQUEST).stat().st_mtime_ns
        except OSError:
            return 0

    def _write(self, name: str, text: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(prefix=".", dir=self.folder)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(scratch, self.folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
        return self.folder / name


if sys.platform != "win32":

    @contextlib.contextmanager
    def _lock(path: Path) -> Iterator[None]:
        folder = os.open(path, os.O_RDONLY)
        try:
            deadline = time.monotonic() + _LONGEST_LOCK
            # Not every network file system locks a folder, and a process may be stopped while it
            # holds the lock; the dumps are written all the same.
            while not _locked(folder) and time.monotonic() < deadline:
                time.sleep(0.01)
            yield
            with contextlib.suppress(OSError):
                # A child that was forked meanwhile shares the lock, so closing would leave it.
                fcntl.flock(folder, fcntl.LOCK_UN)
        finally:
            os.close(folder)

    def _locked(folder: int) -> bool:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True
