"""A folder of dumps, ours or torch's, as the analyser wants it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from torchyard import arguments
from torchyard.evidence import raised_as
from torchyard.evidence.documents import Between
from torchyard.evidence.files import read_file
from torchyard.evidence.pickles import read_pickle
from torchyard_collectives.flight._dump.document import parsed, structured
from torchyard_collectives.flight._dump.journal import SLOTS
from torchyard_collectives.flight._dump.journal_read import newest, read_journal
from torchyard_collectives.flight._dump.schema import from_json
from torchyard_collectives.flight._dump.torch_dump import from_torch, looks_like_torch
from torchyard_collectives.flight._errors import FlightDumpError
from torchyard_collectives.flight._history import Ending, EndingKind, Rank, RankHistory, Text

__all__ = ["FATAL", "JOB", "RESTART", "Dumps", "dump_name", "read_dump", "read_folder", "restarts"]

JOB: Final = "job.json"
FATAL: Final = "fatal-{rank}.txt"
RESTART: Final = "restart-{count}"
_MOST_BYTES: Final = 128 << 20
_MOST_FILES: Final = 65_536
_NUMBERED: Final = re.compile(r"(\d{1,8})(?:\.json|\.pkl|\.pickle)?$")
_JOURNAL: Final = re.compile(r"journal-(\d{1,8})\.names$")
_RESTARTED: Final = re.compile(r"restart-([1-9]\d{0,5})")
_FATAL_NUMBER: Final = re.compile(r"fatal-(\d{1,8})\.txt$")


@dataclass(frozen=True, slots=True)
class Dumps:
    """What a folder holds.

    Attributes:
        histories: by rank.
        world_size: what the collector of the dumps knew; None where there was none.
        gone: ranks without a dump whose process was seen to have ended, with the evidence.
        problems: what could not be read, and what had to be guessed.
        damaged: ranks whose dump could not be read, with the reason.
    """

    histories: Mapping[int, RankHistory]
    world_size: int | None
    gone: Mapping[int, str]
    problems: tuple[str, ...]
    damaged: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _Gone:
    rank: Rank
    text: Text


@dataclass(frozen=True, slots=True)
class _Job:
    world_size: Annotated[int, Between(1, 1 << 24)]
    gone: tuple[_Gone, ...]


def dump_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank}.json"


def restarts(folder: Path) -> list[int]:
    """Return the restarts that left dumps in a folder, ascending; the first start is 0."""
    if not folder.is_dir():
        return []
    found = [_RESTARTED.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()]
    counts = sorted(int(match[1]) for match in found if match is not None)
    own = any(path.is_file() and _NUMBERED.search(path.name) for path in folder.iterdir())
    return [0, *counts] if own else counts


def read_dump(path: str | Path) -> RankHistory:
    """Return the history in a file: ours, or torch's as pickle or JSON."""
    path = arguments.path("read_dump", "path", path)
    if path.is_dir() or not path.exists():
        raise FlightDumpError(f"path: expected a file that holds a dump, got {path}, which is none")
    data = _bytes(path)
    if data[:1] == b"\x80":
        with raised_as(FlightDumpError):
            content = read_pickle(data, str(path))
    else:
        content = parsed(data, str(path))
    if looks_like_torch(content):
        found = _NUMBERED.search(path.name)
        if found is None:
            raise FlightDumpError(
                f"{path}: expected a name that ends in the rank, as torch gives it; rename the file"
            )
        return from_torch(content, int(found[1]), str(path))
    return from_json(content, str(path))


def read_folder(folder: str | Path) -> Dumps:
    """Return every dump in a folder; a file that cannot be read is a problem, and no more.

    FlightDumpError if there is nothing that could be read.
    """
    folder = arguments.path("read_folder", "folder", folder)
    if not folder.is_dir():
        raise FlightDumpError(f"folder: expected a folder of dumps, got {folder}, which is none")
    histories: dict[int, RankHistory] = {}
    problems: list[str] = []
    damaged: dict[int, str] = {}
    files = sorted(
        path
        for path in folder.iterdir()
        if _NUMBERED.search(path.name) and not _RESTARTED.fullmatch(path.name)
    )
    if len(files) > _MOST_FILES:
        raise FlightDumpError(f"{folder}: expected at most {_MOST_FILES} dumps, got {len(files)}")
    for path in files:
        try:
            history = read_dump(path)
        except FlightDumpError as error:
            problems.append(str(error))
            found = _NUMBERED.search(path.name)
            assert found is not None, "files are listed by their number"
            damaged[int(found[1])] = str(error)
            continue
        if history.rank in histories:
            kept = histories[history.rank].source
            problems.append(f"{path}: rank {history.rank} is in {kept} too, which is used")
            continue
        histories[history.rank] = history
    _add_journals(folder, histories, problems)
    if not histories:
        if problems:
            raise FlightDumpError("; ".join(problems))
        raise FlightDumpError(
            f"folder: expected dumps in {folder}, named {dump_name(0)} or as torch names them, "
            "got none"
        )
    world_size, gone = _job(folder / JOB, problems)
    for path in sorted(folder.iterdir()):
        found = _FATAL_NUMBER.match(path.name)
        if found and (text := _fatal(path, problems)):
            _note_fatal(int(found[1]), text, histories, gone)
    histories, guessed = _with_ranks(histories)
    unread = {rank: text for rank, text in damaged.items() if rank not in histories}
    return Dumps(histories, world_size, gone, (*problems, *guessed), unread)


def _add_journals(folder: Path, histories: dict[int, RankHistory], problems: list[str]) -> None:
    """Add ranks that wrote no dump, or went on after it and then no further one."""
    for path in sorted(folder.iterdir()):
        found = _JOURNAL.match(path.name)
        if found is None:
            continue
        rank = int(found[1])
        try:
            slots = _bytes(folder / SLOTS.format(rank=rank))
            history = histories.get(rank)
            if history is not None and newest(slots) <= max(
                [history.dumped or 0, *(record.entered for record in history.records)]
            ):
                continue
            read = read_journal(_bytes(path), slots, str(path))
        except FlightDumpError as error:
            problems.append(str(error))
            continue
        if read.rank == rank:
            histories[rank] = read
        else:
            problems.append(f"{path}: expected the journal of rank {rank}, got rank {read.rank}'s")


def _bytes(path: Path) -> bytes:
    try:
        with raised_as(FlightDumpError):
            return read_file(path, _MOST_BYTES)
    except OSError as error:
        raise FlightDumpError(f"{path}: cannot be read: {error.strerror}") from error


def _job(path: Path, problems: list[str]) -> tuple[int | None, dict[int, str]]:
    """Read what the collector wrote about ranks that it got no dump of."""
    if not path.exists():
        return None, {}
    try:
        job = structured(parsed(_bytes(path), str(path)), _Job, str(path))
    except FlightDumpError as error:
        problems.append(str(error))
        return None, {}
    return job.world_size, {row.rank: row.text for row in job.gone}


def _fatal(path: Path, problems: list[str]) -> str:
    try:
        text = _bytes(path)[:4096].decode("utf-8", "replace").strip()
    except FlightDumpError as error:
        problems.append(str(error))
        return ""
    return text.partition("\n")[0]


def _note_fatal(
    rank: int, text: str, histories: dict[int, RankHistory], gone: dict[int, str]
) -> None:
    history = histories.get(rank)
    if history is None:
        gone[rank] = text
    elif history.ending.kind in (EndingKind.RUNNING, EndingKind.GONE):
        histories[rank] = replace(history, ending=Ending(EndingKind.SIGNAL, text))


def _with_ranks(
    histories: dict[int, RankHistory],
) -> tuple[dict[int, RankHistory], Sequence[str]]:
    """Give groups whose ranks no dump lists the ranks that used them."""
    users: dict[str, list[int]] = {}
    for rank, history in sorted(histories.items()):
        for name, group in history.groups.items():
            if not group.ranks:
                users.setdefault(name, []).append(rank)
    if not users:
        return histories, ()
    told = {
        name: group.ranks
        for history in histories.values()
        for name, group in history.groups.items()
        if group.ranks
    }
    filled = {}
    for rank, history in histories.items():
        groups = {
            name: replace(group, ranks=group.ranks or told.get(name) or tuple(users[name]))
            for name, group in history.groups.items()
        }
        filled[rank] = replace(history, groups=groups)
    guessed = [
        f"group {name}: its ranks are in no dump; taken from who used it: {ranks}"
        for name, ranks in users.items()
        if name not in told
    ]
    return filled, guessed
