"""Groups that a rank did not make, or made differently, are found in the dumps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from packages.collectives.tests.ranks import run_ranks
from torchyard_collectives.flight import Kind, Outcome, Report, analyse, disable, dump, enable
from torchyard_collectives.flight._dump.read import read_folder
from torchyard_collectives.flight._history import Creation, Ending, EndingKind, RankHistory

from .synthetic import Call, Job, line

_SECOND = 10**9
_EXIT = Ending(EndingKind.EXIT)


def _made(*groups: tuple[int, ...], last_over: bool = True) -> tuple[Creation, ...]:
    """Return the calls that make some groups, all in the job's first second."""
    return tuple(
        Creation(str(number), ranks, _SECOND, last_over or number < len(groups), line(number))
        for number, ranks in enumerate(groups, 1)
    )


def _job(*creations: tuple[Creation, ...] | None) -> list[RankHistory]:
    """Return a job whose ranks have made one all_reduce, and run for some seconds after it."""
    histories = Job({"0": (0, 1, 2)}, [[Call("all_reduce")]] * 3).histories()
    return [
        replace(history, creations=made, dumped=(history.dumped or 0) + 5 * _SECOND)
        for history, made in zip(histories, creations, strict=True)
    ]


def _first(report: Report) -> tuple[Kind, tuple[int, ...]]:
    return report.findings[0].kind, report.findings[0].ranks


def test_a_rank_that_left_out_a_group_is_named_at_the_next_one() -> None:
    usual = _made((0, 2), (0, 1, 2))
    report = analyse(_job(usual, _made((0, 1, 2)), usual))
    assert _first(report) == (Kind.GROUPS, (1,))
    text = report.findings[0].text
    assert text == (
        "new_group call 1 differs: ranks 0, 2 made one of ranks 0, 2 at train.py:1 in train; "
        "rank 1 made one of ranks 0, 1, 2 at train.py:1 in train"
    )
    assert "also for groups that it is not in" in report.findings[0].notes[0]


def test_of_ranks_that_all_differ_all_are_named() -> None:
    report = analyse(_job(_made((0,)), _made((1,)), _made((2,))))
    assert _first(report) == (Kind.GROUPS, (0, 1, 2))


def test_a_rank_that_ended_without_a_group_is_named_and_one_that_runs_is_not() -> None:
    usual = _made((0, 2))
    running = _job(usual, (), usual)
    assert analyse(running).outcome is Outcome.HEALTHY
    ended = [replace(history, ending=_EXIT) for history in running]
    report = analyse(ended)
    assert _first(report) == (Kind.GROUPS, (1,))
    assert "without new_group call 1, for ranks 0, 2 at train.py:1" in report.findings[0].text


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (Ending(), Kind.NOT_ENTERED),
        (_EXIT, Kind.GROUPS),
        (Ending(EndingKind.EXCEPTION, "ValueError: no label"), Kind.CRASH),
    ],
)
def test_ranks_that_wait_in_new_group_wait_for_who_has_not_come(ending: Ending, kind: Kind) -> None:
    waiting = _made((0, 1, 2), last_over=False)
    first, absent, third = _job(waiting, (), waiting)
    absent = replace(absent, ending=ending, stack=line(77, "load"))
    report = analyse([first, absent, third])
    assert _first(report) == (kind, (1,))
    assert "where ranks 0, 2 wait" in report.findings[0].text
    assert ("it is at train.py:77 in load" in report.findings[0].text) == (kind is Kind.NOT_ENTERED)
    early = [replace(one, dumped=_SECOND + 1000) for one in (first, absent, third)]
    assert (analyse(early).outcome is Outcome.HEALTHY) == (kind is Kind.NOT_ENTERED)


def test_what_the_dumps_do_not_say_is_no_fault() -> None:
    usual = _made((0, 2))
    ended = [replace(history, ending=_EXIT) for history in _job(usual, None, usual)]
    assert analyse(ended).outcome is Outcome.HEALTHY


def _makes_groups(folder: str) -> list[tuple[str, tuple[int, ...], bool, int]]:
    """Have a new default group, then three groups, one of which only its ranks make."""
    rank, size = dist.get_rank(), dist.get_world_size()
    # Every rank is connected before one leaves.
    dist.barrier()
    dist.destroy_process_group()
    enable(folder)
    try:
        meeting = dist.FileStore(f"{folder}/meeting", size)
        dist.init_process_group("gloo", store=meeting, rank=rank, world_size=size)
        dist.new_group([0])
        dist.new_group()
        # Last: on torch 2.15 its ranks count groups by themselves from here on.
        dist.new_group([1], use_local_synchronization=True)
        dist.all_reduce(torch.ones(1))
        dump(wait=60)
        dist.barrier()
    finally:
        disable()
    history = read_folder(Path(folder)).histories[rank]
    assert history.creations is not None
    return [
        (one.name, one.ranks, one.over, sum(f.file == __file__ for f in one.site))
        for one in history.creations
    ]


def test_the_recorder_sees_the_groups_that_all_ranks_make(tmp_path: Path) -> None:
    for creations in run_ranks(2, _makes_groups, str(tmp_path), fresh=True):
        assert creations == [("1", (0,), True, 1), ("2", (0, 1), True, 1)]
