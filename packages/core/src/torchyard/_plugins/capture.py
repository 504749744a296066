"""Captured standard output of one thread; that of other threads is passed on."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO, cast


class _ThreadCapture:
    """A stdout that captures the writes of the thread that made it and passes on all others."""

    def __init__(self, stdout: TextIO, kept: io.StringIO) -> None:
        self._stdout = stdout
        self._captured = kept
        self._owner: int | None = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._owner:
            return self._captured.write(text)
        return self._stdout.write(text)

    def release(self) -> None:
        """Pass everything on from now on, since code that wrapped this stdout may hold it."""
        self._owner = None

    # Everything else - encoding, fileno, buffer - is the real stdout's.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)


@contextlib.contextmanager
def capture_prints() -> Iterator[io.StringIO]:
    """Capture what this thread writes to ``sys.stdout`` inside the block."""
    kept = io.StringIO()
    before = sys.stdout
    # A process without a console has none; then there is nothing to protect.
    if before is None:
        yield kept
        return
    capture = _ThreadCapture(before, kept)
    sys.stdout = cast(TextIO, capture)
    try:
        yield kept
    finally:
        capture.release()
        if cast(object, sys.stdout) is capture:
            sys.stdout = before
