"""What a job's end does to its ranks is not taken for what ended it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from torchyard_collectives.flight import Kind, analyse, read_folder
from torchyard_collectives.flight._dump.schema import dumps
from torchyard_collectives.flight._history import (
    Ending,
    EndingKind,
    RankHistory,
    Record,
    State,
    TensorSpec,
)

from .synthetic import Call, Job, line

_SECOND = 10**9
_TERM = Ending(EndingKind.SIGNAL, "SIGTERM")
_TIMEOUT = "torchyard_collectives.shm._errors.RankTimeoutError: rank 1 did not come within 9 s"


def _waits_for_one(seconds: float) -> list[RankHistory]:
    """Rank 0 has waited so long for rank 1, and its call has failed."""
    waiting, absent = Job(
        {"0": (0, 1)}, [[Call("all_reduce")] * 2, [Call("all_reduce")]]
    ).histories()
    last = replace(waiting.records[-1], state=State.FAILED, error=_TIMEOUT, completed=None)
    over = last.entered + int(seconds * _SECOND)
    ending = Ending(EndingKind.EXCEPTION, _TIMEOUT, last.site)
    waiting = replace(waiting, records=(*waiting.records[:-1], last), dumped=over, ending=ending)
    return [waiting, replace(absent, stack=line(77, "load"), dumped=over + _SECOND, ending=_TERM)]


def test_a_rank_that_the_launcher_ended_is_still_the_one_that_did_not_come() -> None:
    found = analyse(_waits_for_one(9)).findings[0]
    assert (found.kind, found.ranks) == (Kind.NOT_ENTERED, (1,))
    assert "77 in load" in found.text


def test_a_rank_that_was_ended_first_is_the_cause() -> None:
    waiting, ended = _waits_for_one(9)
    entered = waiting.records[-1].entered
    ended = replace(ended, dumped=entered + _SECOND // 10)
    found = analyse([waiting, ended]).findings[0]
    assert (found.kind, found.ranks) == (Kind.CRASH, (1,))
    assert "SIGTERM" in found.text


def _message(op: str, peer: int, tag: int, state: State) -> Record:
    spec = (TensorSpec((4,), "float32"),)
    return Record(
        "0", 0, op, spec if op == "send" else (), () if op == "send" else spec, peer=peer,
        tag=tag, site=line(30 + tag), entered=_SECOND, completed=None, state=state,
    )  # fmt: skip


def _with(history: RankHistory, *records: Record, failed: bool) -> RankHistory:
    ending = Ending(EndingKind.EXCEPTION, _TIMEOUT, records[-1].site) if failed else _TERM
    return replace(history, records=records, dumped=20 * _SECOND, ending=ending)


@pytest.mark.parametrize("failed", [(True, True), (True, False), (False, False)])
def test_a_circle_of_receives_stays_one_after_a_timeout(failed: tuple[bool, bool]) -> None:
    first, second = Job({"0": (0, 1)}, [[], []]).histories()
    # A handle that keeps its error looks over once its caller has come back.
    states = [State.COMPLETED if one else State.STARTED for one in failed]
    first = _with(first, _message("recv", 1, 0, states[0]), failed=failed[0])
    second = _with(second, _message("recv", 0, 0, states[1]), failed=failed[1])
    found = analyse([first, second]).findings[0]
    assert (found.kind, found.ranks) == (Kind.ORDER, (0, 1))
    assert "in a circle" in found.text


def test_tags_that_differ_are_named_with_both_lines() -> None:
    sender, receiver = Job({"0": (0, 1)}, [[], []]).histories()
    barrier = Record("0", 0, "barrier", site=line(50), entered=2 * _SECOND, state=State.STARTED)
    sender = _with(sender, _message("send", 1, 3, State.COMPLETED), barrier, failed=False)
    receiver = _with(receiver, _message("recv", 0, 4, State.COMPLETED), failed=True)
    found = analyse([sender, receiver]).findings[0]
    assert (found.kind, found.ranks) == (Kind.ARGUMENTS, (0, 1))
    assert all(word in found.text for word in ("tag 3", ":33 ", "tag 4", ":34 "))


def test_a_programs_own_error_stays_the_cause() -> None:
    waiting, absent = _waits_for_one(9)
    error = Ending(EndingKind.EXCEPTION, "ValueError: nan in loss", line(12))
    absent = replace(absent, ending=error, dumped=waiting.records[-1].entered)
    found = analyse([waiting, absent]).findings[0]
    assert (found.kind, found.ranks) == (Kind.CRASH, (1,))
    assert "nan in loss" in found.text


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_damaged_dump_is_not_called_missing(kept: float, tmp_path: Path) -> None:
    for history in _waits_for_one(9):
        text = dumps(history)
        text = text if history.rank == 0 else text[: int(kept * len(text))]
        (tmp_path / f"rank-{history.rank}.json").write_text(text, encoding="utf-8")
    read = read_folder(tmp_path)
    assert set(read.damaged) == {1}
    report = analyse(list(read.histories.values()), problems=read.problems, damaged=read.damaged)
    found = report.findings[0]
    assert (found.kind, found.ranks, found.certain) == (Kind.DAMAGED, (1,), False)
    assert "rank-1.json" in found.notes[0]
    assert not any("no dump of rank" in problem for problem in report.problems)
