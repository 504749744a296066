"""``DiskTier``: a folder of entries."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from torchyard import arguments
from torchyard_cache._reuse._eviction import POLICIES, Entries
from torchyard_cache.artifacts._stores import replace_file

__all__ = ["DiskTier"]


class DiskTier:
    """A folder of files, within a budget of bytes; least recently used files go first.

    Args:
        folder: of this cache alone.
        budget: bytes.

    Raises:
        TypeError, ValueError: an argument does not fit.
    """

    name = "disk"

    def __init__(self, folder: str | os.PathLike[str], budget: int) -> None:
        self._folder = arguments.path("DiskTier", "folder", folder)
        budget = arguments.integer("DiskTier", "budget", budget, least=1)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: Entries[None] = Entries(
            budget, POLICIES["lru"], float("inf"), lambda entry: self._unlink(entry.key)
        )
        self.errors = 0
        # What an earlier process left, the oldest first.
        found = {}
        for path in self._folder.glob("*.safe"):
            # Another process may have removed it since it was listed.
            with suppress(FileNotFoundError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    found[path] = status
        for path in sorted(found, key=lambda path: found[path].st_mtime):
            if not self._files.put(path.stem, None, found[path].st_size, 0.0):
                path.unlink(missing_ok=True)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._files.bytes

    def get(self, key: str) -> bytes | None:
        """Return a file's bytes."""
        with self._files.leased([key]):
            if self._files.get(key) is None:
                return None
            try:
                return self._path(key).read_bytes()
            except OSError:
                self.errors += 1
        self._files.drop(key)
        return None

    def put(self, key: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        if key in self._files or not self._files.put(key, None, len(data), 0.0):
            return
        try:
            replace_file(self._path(key), data)
        except OSError:
            self.errors += 1
            self._files.drop(key)

    def delete(self, key: str) -> None:
        """Remove a file."""
        self._files.drop(key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safe"

    def _unlink(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)
