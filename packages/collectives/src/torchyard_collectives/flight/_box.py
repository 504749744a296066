"""The folder where dumps go."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torchyard import restart_count
from torchyard_collectives.flight._read import JOB, RESTART, dump_name

__all__ = ["REQUEST", "Box"]

REQUEST: Final = "request"


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
        """Write a rank's dump."""
        return self._write(dump_name(rank), text)

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
