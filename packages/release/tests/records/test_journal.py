"""The journal loses no line, and a line that was touched is found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard_release._errors import JournalError
from torchyard_release._records import _journal
from torchyard_release._records._journal import Journal, read_journal


def _written(path: Path, count: int) -> None:
    with Journal(path, "ann") as journal:
        for number in range(count):
            journal.append("step", number=number, text="ä\n")


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    _written(path, 3)
    entries = read_journal(path)
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert entries[2].data == {"number": 2, "text": "ä\n"}
    assert entries[0].previous == "0" * 64
    assert path.read_bytes().count(b"\n") == 3
    with Journal(path, "bob") as journal:
        assert journal.entries() == entries
        journal.append("more")
    assert read_journal(path)[3].actor == "bob"


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "journal.jsonl") == ()


# Each example waits for the disk.
@settings(max_examples=40)
@given(st.data())
def test_a_journal_cut_anywhere_keeps_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal.jsonl"
    _written(path, 3)
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    torn = cut - (content[:cut].rfind(b"\n") + 1)
    assert len(read_journal(path)) == whole
    with Journal(path, "ann") as journal:
        journal.append("after")
    entries = read_journal(path)
    assert [entry.kind for entry in entries] == [
        *["step"] * whole,
        *["recovered"] * bool(torn),
        "after",
    ]
    if torn:
        assert entries[whole].data == {"bytes": torn}
        assert path.with_suffix(".torn").read_bytes() == content[cut - torn : cut] + b"\n"


# Each example waits for the disk.
@settings(max_examples=40)
@given(st.data())
def test_a_changed_byte_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("changed") / "journal.jsonl"
    _written(path, 3)
    content = bytearray(path.read_bytes())
    # The last line has no line after it that vouches for it, except in its form.
    end = content[:-1].rfind(b"\n") + 1
    position = data.draw(st.integers(0, end - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    with pytest.raises(JournalError, match=r"line \d is not what was written there"):
        read_journal(path)


@pytest.mark.parametrize("lines", [[0, 2, 3], [0, 2, 1, 3], [0, 0, 1, 2, 3]])
def test_a_line_taken_out_moved_or_repeated_is_found(tmp_path: Path, lines: list[int]) -> None:
    path = tmp_path / "journal.jsonl"
    _written(path, 4)
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[number] for number in lines))
    with pytest.raises(JournalError, match="is not what was written there"):
        Journal(path, "ann")


def test_a_clock_that_goes_backwards_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class _Backwards(_journal.datetime.datetime):  # type: ignore[misc]
        days = 20

        @classmethod
        def now(cls, tz: object = None) -> _journal.datetime.datetime:
            cls.days -= 1
            return _journal.datetime.datetime(2027, 1, cls.days, tzinfo=_journal.datetime.UTC)

    monkeypatch.setattr(_journal.datetime, "datetime", _Backwards)
    _written(tmp_path / "journal.jsonl", 3)
    assert [entry.data["number"] for entry in read_journal(tmp_path / "journal.jsonl")] == [0, 1, 2]


def test_a_full_disk_leaves_the_journal_as_it_was_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _written(path, 2)
    before = path.read_bytes()
    program = """
import resource, sys
from pathlib import Path
from torchyard_release._errors import JournalError
from torchyard_release._records._journal import Journal
path = Path(sys.argv[1])
with Journal(path, "ann") as journal:
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, resource.RLIM_INFINITY))
    try:
        journal.append("step", text="long" * 30)
    except JournalError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert path.stat().st_size == size
    journal.append("later")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert "the disk is full: nothing was recorded; free some space" in done.stdout
    assert path.read_bytes().startswith(before)
    assert [entry.kind for entry in read_journal(path)] == ["step", "step", "later"]


@pytest.mark.parametrize("moment", ["before", "within", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_at_any_write_nothing_that_counted_is_lost(
    tmp_path: Path, moment: str, number: int
) -> None:
    path = tmp_path / "journal.jsonl"
    program = f"""
import os, signal, sys
from pathlib import Path
from torchyard_release._records import _journal
write, count = _journal._write, 0
def dying(descriptor, line):
    global count
    count += 1
    if count == {number}:
        if {moment!r} == "within":
            os.write(descriptor, line[: len(line) // 2])
        if {moment!r} == "after":
            write(descriptor, line)
        os.kill(os.getpid(), signal.SIGKILL)
    write(descriptor, line)
_journal._write = dying
with _journal.Journal(Path(sys.argv[1]), "ann") as journal:
    for step in range(5):
        journal.append("step", step=step)
        print(step, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL
    counted = [int(line) for line in done.stdout.split()]
    found = [entry.data["step"] for entry in read_journal(path)]
    assert found[: len(counted)] == counted
    assert len(found) == len(counted) + (moment == "after")
    with Journal(path, "ann") as journal:
        kinds = [entry.kind for entry in journal.entries()]
    assert kinds.count("recovered") == (moment == "within")


def test_a_line_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write, fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *a: order.append("write") or write(*a))
    monkeypatch.setattr(os, "fsync", lambda *a: order.append("fsync") or fsync(*a))
    with Journal(tmp_path / "journal.jsonl", "ann") as journal:
        order.clear()
        journal.append("step")
        assert order == ["write", "fsync"]
    assert json.loads((tmp_path / "journal.jsonl").read_text())["kind"] == "step"
