"""Regular files, up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torchyard.evidence._errors import EvidenceError

__all__ = ["read_file"]


def read_file(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file.

    Args:
        path: of the file; a link is followed. A pipe or a device, which would hold the reader for
            ever or never end, is refused before a byte is read.
        most: how many bytes it may have.

    Raises:
        EvidenceError: it is larger, or no regular file.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise EvidenceError(f"{path}: expected a regular file")
        # Python reserves what it is asked to read. One byte more shows that the file has grown, and
        # another one that there is more than is allowed, however large it is.
        data = file.read(min(found.st_size, most) + 1)
        if len(data) > found.st_size:
            data += file.read(most + 1 - len(data))
    if len(data) > most:
        raise EvidenceError(f"{path}: expected at most {most} bytes, got more")
    return data
