"""Dumps are data: whole ones are read exactly, hostile ones refused without an effect."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchyard_collectives.flight import FlightDumpError, analyse, read_dump, read_folder
from torchyard_collectives.flight._dump.document import parsed
from torchyard_collectives.flight._dump.folder import Box
from torchyard_collectives.flight._dump.journal import WIDTH, Journal
from torchyard_collectives.flight._dump.schema import dumps, from_json, to_json
from torchyard_collectives.flight._history import Creation
from torchyard_collectives.flight._report.timeline import render_html

from .synthetic import Call, Job, line

_HISTORY = replace(
    Job({"0": (0, 1)}, [[Call("all_reduce"), Call("broadcast", site=2)]] * 2).histories()[0],
    creations=(Creation("1", (0,), 5, True, line(3)), Creation("2", (0, 1), 9, False)),
)


def test_a_dump_comes_back_as_it_was_written() -> None:
    assert from_json(json.loads(dumps(_HISTORY)), "") == _HISTORY
    assert _HISTORY.creations
    older = replace(_HISTORY, creations=None)
    assert from_json(json.loads(dumps(older)), "") == older


def test_a_dump_that_is_collected_late_leaves_a_newer_one_of_the_same_process(
    tmp_path: Path,
) -> None:
    box, path = Box(tmp_path), tmp_path / "rank-0.json"
    early = replace(_HISTORY, dumped=100, pid=7)
    late, restarted = replace(early, dumped=200), replace(early, dumped=50, pid=8)
    box.collect(early, dumps(early))
    assert read_dump(path).dumped == 100
    box.put(0, dumps(late))
    box.collect(early, dumps(early))
    assert read_dump(path).dumped == 200
    # Another process's clock and dumps are its own.
    box.collect(restarted, dumps(restarted))
    assert read_dump(path).pid == 8
    path.write_text("{}", encoding="utf-8")
    box.collect(early, dumps(early))
    assert read_dump(path).pid == 7


_PLACES = [
    ("schema",), ("version",), ("rank",), ("world_size",), ("clock", "wall_minus_monotonic"),
    ("dropped",), ("ending", "kind"), ("groups", 0, "ranks"), ("groups", 0, "ranks", 0),
    ("groups", 0, "numbered"), ("sites", 0), ("sites", 0, 0, "line"), ("records", 0, "site"),
    ("records", 0, "group"), ("records", 0, "state"), ("records", 0, "entered"),
    ("records", 0, "inputs", 0), ("records", 0, "inputs", 0, 0, 0), ("records", 0, "arguments"),
    ("creations",), ("creations", 0, "number"), ("creations", 0, "ranks", 0),
    ("creations", 1, "over"),
]  # fmt: skip


@given(
    place=st.sampled_from(_PLACES),
    value=st.sampled_from([None, -1, 10**40, 1.5, [], {}, "", "x" * 70_000, [[[]]], True, [{}]]),
)
def test_a_field_that_is_wrong_is_named_or_was_allowed(
    place: tuple[str | int, ...], value: Any
) -> None:
    data: Any = to_json(_HISTORY)
    inner = data
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    try:
        history = from_json(data, "dump")
    except FlightDumpError as error:
        said = str(error)
    else:
        # What passes the checks is a dump like any other.
        analyse([history])
        said = "dump"
    assert "dump" in said
    assert len(said) < 600


@given(cut=st.integers(1, 400))
def test_a_truncated_dump_is_an_error(cut: int) -> None:
    text = dumps(_HISTORY)
    with pytest.raises(FlightDumpError, match="damaged"):
        _read_text(text[:-cut])


def _read_text(text: str) -> None:
    from_json(parsed(text.encode(), "dump"), "dump")


class _Runs:
    """Unpickled by pickle it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def _hostile(folder: Path) -> dict[str, bytes]:
    made = folder / "made"
    persistent = pickle.PROTO + b"\x02" + pickle.BINUNICODE + b"\x01\0\0\0a" + pickle.BINPERSID
    return {
        "call": pickle.dumps({"entries": [], "pg_config": _Runs(made), "version": "2.10"}),
        "call of protocol 2": pickle.dumps({"a": _Runs(made)}, 2),
        "global alone": pickle.dumps(os.system),
        "persistent": persistent + b".",
        "extension": b"\x80\x02\x82\x01.",
        "object": b"\x80\x02(c" + b"os\nmkdir\n" + b"o.",
        "instance": b"\x80\x02(ios\nmkdir\n.",
        "bytes": pickle.dumps({"entries": b"x", "pg_config": {}, "version": "2.10"}),
        "second pickle": pickle.dumps({"entries": [], "pg_config": {}, "version": "2.10"}) * 2,
        "truncated": pickle.dumps({"entries": list(range(1000))})[:-50],
        "huge length": b"\x80\x04\x8d" + (2**62).to_bytes(8, "little") + b"a.",
        "nothing": b"\x80",
    }


@pytest.mark.parametrize("name", list(_hostile(Path())))
def test_a_hostile_pickle_has_no_effect(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace_0"
    path.write_bytes(_hostile(tmp_path)[name])
    with pytest.raises(FlightDumpError, match="trace_0"):
        read_dump(path)
    assert not (tmp_path / "made").exists()


def test_the_hostile_pickles_are_hostile(tmp_path: Path) -> None:
    pickle.loads(_hostile(tmp_path)["call"])
    assert (tmp_path / "made").is_dir()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"schema": 1}', "schema"),
        ('{"schema": "torchyard.flight", "version": 99}', "version: expected 1, got 99"),
        ('{"entries": 1, "pg_config": {}, "version": "2.10"}', "entries"),
        ('{"entries": [{}], "pg_config": {}, "version": "2.10"}', "damaged"),
        ('{"entries": [], "pg_config": {}, "version": "9.0"}', "2.x"),
        ('{"entries": [], "pg_config": {"": {"ranks": "[[1]]"}}, "version": "2.1"}', "damaged"),
        ("1" * 10_000, "damaged"),
    ],
)
def test_damaged_json_is_an_error_that_names_the_file(
    text: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace_0.json"
    path.write_text(text)
    with pytest.raises(FlightDumpError, match=r"trace_0\.json") as caught:
        read_dump(path)
    assert expected in str(caught.value)


def test_a_pipe_and_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank-0.json")
    (tmp_path / "rank-1.json").mkdir()
    with pytest.raises(FlightDumpError, match="regular file"):
        read_dump(tmp_path / "rank-0.json")
    with pytest.raises(FlightDumpError):
        read_folder(tmp_path)


def test_one_damaged_file_does_not_hide_the_others(tmp_path: Path) -> None:
    for history in Job({"0": (0, 1, 2)}, [[Call("all_reduce")]] * 3).histories()[:2]:
        (tmp_path / f"rank-{history.rank}.json").write_text(dumps(history))
    (tmp_path / "rank-2.json").write_text("{")
    found = read_folder(tmp_path)
    assert sorted(found.histories) == [0, 1]
    assert any("rank-2.json" in problem for problem in found.problems)
    report = analyse(list(found.histories.values()), problems=found.problems)
    assert report.without_dump == (2,)
    assert report.to_json()["outcome"] == "inconclusive"


def test_a_dump_that_says_another_rank_than_its_name_is_used_once(tmp_path: Path) -> None:
    for name in ("rank-0.json", "rank-1.json"):
        (tmp_path / name).write_text(dumps(_HISTORY))
    found = read_folder(tmp_path)
    assert sorted(found.histories) == [0]
    assert "which is used" in found.problems[0]


def test_an_empty_folder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(FlightDumpError, match=r"rank-0\.json"):
        read_folder(tmp_path)
    with pytest.raises(FlightDumpError, match="a folder of dumps"):
        read_folder(tmp_path / "none")


def _journal(folder: Path, rank: int, calls: int) -> Journal:
    journal = Journal(folder, rank, 2, capacity=4)
    journal.group(
        {"name": "0", "ranks": [0, 1], "description": "", "backend": "gloo", "numbered": True}
    )
    frame = {"file": "train.py", "line": 7, "function": "train"}
    for number in range(calls):
        if (name := journal.known("key")) is None:
            name = journal.name(
                "key",
                {
                    "op": "all_reduce", "group": "0", "tag": 0, "inputs": ["float32"],
                    "outputs": [], "arguments": {"reduce": "sum"}, "site": [frame],
                },
            )  # fmt: skip
        place = journal.put(name, number, 1000 + number, -2, "4, 2|")
        journal.mark(place, ord("c"))
    return journal


@given(calls=st.integers(0, 11), cut=st.integers(0, WIDTH))
def test_a_journal_has_the_last_calls_of_a_process_that_is_gone(
    calls: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    _journal(folder, 1, calls).close(remove=False)
    slots = folder / "journal-1.slots"
    data = slots.read_bytes()
    slots.write_bytes(data[: len(data) - cut])
    history = read_folder(folder).histories[1]
    kept = {record.sequence for record in history.records}
    whole = set(range(max(calls - 4, 0), calls))
    # Of a line that is cut only its own call is lost.
    assert kept <= whole
    assert len(whole - kept) <= (1 if cut else 0)
    for record in history.records:
        assert str(record.inputs[0]) == "float32[4, 2]"
        assert record.site[0].line == 7


def test_a_dump_that_is_as_new_replaces_the_journal(tmp_path: Path) -> None:
    _journal(tmp_path, 0, 2).close(remove=False)
    (tmp_path / "rank-0.json").write_text(dumps(_HISTORY))
    assert len(read_folder(tmp_path).histories[0].records) == len(_HISTORY.records)
    (tmp_path / "rank-0.json").write_text(dumps(replace(_HISTORY, records=(), dumped=1)))
    assert len(read_folder(tmp_path).histories[0].records) == 2


def test_a_damaged_journal_is_a_problem_and_no_more(tmp_path: Path) -> None:
    _journal(tmp_path, 1, 2).close(remove=False)
    (tmp_path / "journal-1.names").write_text('{"kind": "head", "rank": "none"}\n')
    (tmp_path / "rank-0.json").write_text(dumps(_HISTORY))
    found = read_folder(tmp_path)
    assert sorted(found.histories) == [0]
    assert "journal-1.names" in found.problems[0]


def test_the_page_runs_and_loads_nothing_whatever_a_dump_says() -> None:
    hostile = "</script><script>alert(1)</script><img src=http://example.invalid onerror=alert(1)>"
    job = Job({hostile: (0, 1)}, [[Call(hostile, group=hostile)], []])
    histories = [replace(history, host=hostile, reason=hostile) for history in job.histories()]
    page = render_html(analyse(histories, problems=[hostile]))
    assert page.count("&lt;script&gt;") >= 4
    for forbidden in ("<script", "<img", "src=", "<link", "@import", "url("):
        assert forbidden not in page.replace("&lt;img src=", "")
    assert "default-src 'none'" in page
