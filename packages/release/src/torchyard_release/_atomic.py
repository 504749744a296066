"""Atomic file writes that survive a crash of the machine."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that whoever reads it, at any time, sees the old bytes or the new.

    Raises:
        OSError: it cannot be written; what was there before still is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json_atomically(path: Path, data: object) -> None:
    """Write one JSON document, sorted and with a line per value."""
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode())


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlive the machine's going down."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
