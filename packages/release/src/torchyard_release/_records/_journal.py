"""The journal: what was done to a train, in an append-only file.

Each line is one JSON object that holds the SHA-256 of the line before it, and is on the disk before
the step that it speaks of counts as done. Order is the number of a line, never the clock.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torchyard.evidence import DocumentError
from torchyard.evidence.documents import parse_json, structure
from torchyard_release._atomic import sync_folder
from torchyard_release._errors import JournalError

_FIRST: Final = "0" * 64
_KEYS: Final = {"actor", "data", "kind", "previous", "seq", "when"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line.

    Attributes:
        seq: its number, from 1.
        kind: what it records.
        when: what the clock said, UTC, ISO 8601.
        actor: whose git identity it was.
        data: what belongs to its kind.
        previous: SHA-256 of the line before it, line feed included; zeros for the first.
    """

    seq: int
    kind: str
    when: str
    actor: str
    data: Mapping[str, Any]
    previous: str


class Journal:
    """One journal, open for adding; only the holder of the train's lock may open it.

    Args:
        path: the file, which need not exist.
        actor: who adds lines.

    Attributes:
        code: the exit status of the command at work, which its last line records.

    Raises:
        JournalError: what is there is not what was written.
    """

    def __init__(self, path: Path, actor: str) -> None:
        self._actor = actor
        self.code = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = _cut_torn_end(path)
        self._entries, self._last = _read(path)
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        sync_folder(path.parent)
        if torn:
            self.append("recovered", bytes=torn)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def entries(self) -> tuple[Entry, ...]:
        """Return every line, oldest first."""
        return tuple(self._entries)

    def append(self, kind: str, /, **data: Any) -> Entry:
        """Add a line; it is on the disk when this returns.

        Raises:
            JournalError: it could not be written; the journal is as it was.
        """
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        entry = Entry(len(self._entries) + 1, kind, when, self._actor, data, self._last)
        line = _line(entry)
        length = os.fstat(self._descriptor).st_size
        try:
            _write(self._descriptor, line)
        except OSError as error:
            os.ftruncate(self._descriptor, length)
            os.fsync(self._descriptor)
            full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
            what = "the disk is full" if full else str(error.strerror or error)
            raise JournalError(
                f"{self._path}: {kind}: {what}: nothing was recorded",
                "free some space, then run the same command again: it goes on where it stopped",
            ) from error
        self._entries.append(entry)
        self._last = hashlib.sha256(line).hexdigest()
        return entry


def read_journal(path: Path) -> tuple[Entry, ...]:
    """Return the lines of a journal that nobody need hold; none where there is no file.

    A line that is being written, or whose writer was killed, is not among them.
    """
    return tuple(_read(path)[0])


def _write(descriptor: int, line: bytes) -> None:
    """Put a line on the disk: every byte of a journal goes through here."""
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


def _line(entry: Entry) -> bytes:
    fields = {key: getattr(entry, key) for key in _KEYS}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def _read(path: Path) -> tuple[list[Entry], str]:
    """Return the lines, and the SHA-256 of the last."""
    entries: list[Entry] = []
    last = _FIRST
    content = path.read_bytes() if path.is_file() else b""
    whole, _, _ = content.rpartition(b"\n")
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        entry = _parse(line)
        if entry is None or entry.seq != number or entry.previous != last:
            raise JournalError(
                f"{path}: line {number} is not what was written there: it was changed, or a line "
                f"before it was taken out or put in",
                "put the file back from a copy; until then this train cannot go on, because what "
                "was done to it is not known",
            )
        entries.append(entry)
        last = hashlib.sha256(line + b"\n").hexdigest()
    return entries, last


def _parse(line: bytes) -> Entry | None:
    try:
        entry = structure(parse_json(line, ""), Entry, "")
    except DocumentError:
        return None
    return entry if _line(entry) == line + b"\n" else None


def _cut_torn_end(path: Path) -> int:
    """Move a last line that was never finished to a file beside it; return how long it was."""
    if not path.is_file():
        return 0
    content = path.read_bytes()
    whole = content.rpartition(b"\n")[0]
    end = len(whole) + 1 if whole else 0
    torn = content[end:]
    if torn:
        with path.with_suffix(".torn").open("ab") as beside:
            beside.write(torn + b"\n")
            beside.flush()
            os.fsync(beside.fileno())
        os.truncate(path, end)
    return len(torn)
