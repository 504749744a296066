"""The state folder: what the train's commands share, outside of git.

::

    .train/lock                     held by the one operator at work
    .train/operator.json            who that is
    .train/X.Y.Z/journal.jsonl      what was done to a release, over all its candidates
    .train/X.Y.Z/rcN/dist/          the files of a candidate, and nothing else
    .train/X.Y.Z/rcN/candidate.json their names, digests, and what they were made from
    .train/X.Y.Z/rcN/evidence/      what is known about them, a file per row of a gate
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from filelock import FileLock, Timeout

from torchyard_release._atomic import write_atomically, write_json_atomically
from torchyard_release._errors import CandidateError, JournalError, LockedError
from torchyard_release._records._candidate import Candidate, read_candidate
from torchyard_release._records._journal import Entry, Journal, read_journal

FOLDER: Final = ".train"


@dataclass(frozen=True, slots=True)
class ReleaseState:
    """What is kept of one release.

    Attributes:
        folder: of the release; it need not exist.
    """

    folder: Path

    @property
    def journal(self) -> Path:
        """The file of its journal."""
        return self.folder / "journal.jsonl"

    def entries(self) -> tuple[Entry, ...]:
        """Return what its journal holds; nothing where there is none."""
        return read_journal(self.journal)

    def candidate(self, number: int) -> Path:
        """Return the folder of a candidate."""
        return self.folder / f"rc{number}"

    def candidates(self) -> tuple[int, ...]:
        """Return the numbers of the candidates that were built, ascending."""
        found = (
            int(match[1])
            for path in self.folder.glob("rc*/candidate.json")
            if (match := re.fullmatch(r"rc([1-9]\d*)", path.parent.name))
        )
        return tuple(sorted(found))

    def latest(self) -> tuple[int, Candidate]:
        """Return the newest candidate that was built; CandidateError where there is none."""
        numbers = self.candidates()
        if not numbers:
            raise CandidateError(
                f"{self.folder}: no candidate has been built",
                "cut the train and build: `torchyard release cut`, `torchyard release build`",
            )
        return numbers[-1], read_candidate(self.candidate(numbers[-1]))


class State:
    """The state folder of a repository.

    Args:
        folder: where it is, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    def release(self, version: str) -> ReleaseState:
        """Return what is kept of a release, by its version X.Y.Z."""
        return ReleaseState(self.folder / version)

    def releases(self) -> tuple[str, ...]:
        """Return the versions of which a journal is kept."""
        return tuple(sorted(path.parent.name for path in self.folder.glob("*/journal.jsonl")))

    @contextlib.contextmanager
    def operation(
        self, version: str, argv: Sequence[str], commit: str, actor: str
    ) -> Iterator[Journal]:
        """Hold the train while a command works, and record that it began and how it ended.

        Args:
            version: of the release that it works on.
            argv: its words.
            commit: that is checked out.
            actor: whose git identity it is.

        Raises:
            LockedError: somebody else holds the train.
            JournalError: the journal is damaged, or cannot be written.
        """
        self._create()
        with self._held(argv, actor), Journal(self.release(version).journal, actor) as journal:
            journal.append("command", argv=list(argv), commit=commit)
            began = time.monotonic()
            code, said = 1, ""
            try:
                yield journal
                code = journal.code
            except click.exceptions.Exit as error:
                code = error.exit_code
                raise
            except BaseException as error:
                said = str(error) or type(error).__name__
                raise
            finally:
                seconds = round(time.monotonic() - began, 3)
                # What stopped the command is what its operator has to hear of, not that the
                # journal had no room left for it.
                with contextlib.suppress(*[JournalError] * bool(said)):
                    journal.append("ended", rc=code, seconds=seconds, said=said)

    def at_work(self) -> str:
        """Return who holds the train now and what for; empty where nobody does.

        The lock is not touched, so that looking turns nobody away. A file that a killed command
        left names a process that is gone.
        """
        holder = self.folder / "operator.json"
        try:
            data = json.loads(holder.read_text(encoding="utf-8"))
            if data["host"] == socket.gethostname():
                os.kill(data["pid"], 0)
        except PermissionError:
            pass
        except (OSError, ValueError):
            return ""
        return _described(holder)

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # So that the work tree stays clean in any repository, whatever its own .gitignore says.
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            write_atomically(ignore, b"*\n")

    @contextlib.contextmanager
    def _held(self, argv: Sequence[str], actor: str) -> Iterator[None]:
        lock = FileLock(self.folder / "lock", timeout=0)
        holder = self.folder / "operator.json"
        try:
            lock.acquire()
        except Timeout:
            raise LockedError(
                f"{self.folder}: another operator holds this train: {_described(holder)}",
                "wait until that command has ended, or ask its operator",
            ) from None
        try:
            since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            write_json_atomically(
                holder,
                {
                    "actor": actor,
                    "command": list(argv),
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "since": since,
                },
            )
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()


def _described(holder: Path) -> str:
    try:
        data = json.loads(holder.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "it has just begun"
    return (
        f"{data['actor']} on {data['host']}, process {data['pid']}, since {data['since']}: "
        f"torchyard release {' '.join(data['command'])}"
    )
