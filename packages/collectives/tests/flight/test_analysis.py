"""The analyser names what went wrong in jobs of any length, with rings and clocks of any kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchyard_collectives.flight import Kind, Outcome, analyse
from torchyard_collectives.flight._history import (
    Branch,
    EndingKind,
    Frame,
    Record,
    State,
    TensorSpec,
)

from .synthetic import Call, Job, line

_SECOND = 1_000_000_000
_STEP = (
    Call("all_reduce", (8,), site=11),
    Call("all_gather_into_tensor", (2, 3), site=12),
    Call("broadcast", (5,), "int64", site=13),
)


@st.composite
def _jobs(draw: st.DrawFn, sizes: tuple[int, int] = (3, 5)) -> Job:
    """Draw a healthy job of some steps, with clocks that agree on nothing."""
    size = draw(st.integers(*sizes))
    steps = draw(st.integers(2, 8))
    ranks = range(size)
    return Job(
        groups={"0": tuple(ranks)},
        programs=[list(_STEP) * steps for _ in ranks],
        skews={rank: draw(st.integers(-(10**12), 10**12)) for rank in ranks},
        boots={rank: draw(st.integers(0, 10**15)) for rank in ranks},
    )


@given(_jobs(), st.integers(3, 1000))
def test_a_healthy_job_is_healthy_whatever_its_clocks_and_rings(job: Job, capacity: int) -> None:
    job.capacity = capacity
    assert analyse(job.histories()).outcome is Outcome.HEALTHY


def _change(job: Job, place: int, new: Callable[[Call], Call], rank: int) -> None:
    job.programs[rank][place] = new(job.programs[rank][place])


_CHANGES = {
    Kind.SHAPE: lambda call: replace(call, shape=(*call.shape, 7)),
    Kind.DTYPE: lambda call: replace(call, dtype="float16"),
    Kind.OP: lambda call: replace(call, op="all_to_all_single"),
}


@pytest.mark.parametrize("kind", _CHANGES, ids=str)
@given(data=st.data())
def test_a_call_that_differs_is_named_with_its_rank(kind: Kind, data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = data.draw(st.integers(0, len(job.programs[0]) - 1))
    _change(job, place, _CHANGES[kind], rank)
    job.capacity = data.draw(st.integers(2, 100))
    report = analyse(job.histories())
    found = report.findings[0]
    assert (found.kind, found.ranks, found.sequence) == (kind, (rank,), place)
    assert {call.rank for call in found.calls} == set(range(len(job.programs)))
    assert all(call.site for call in found.calls)


@given(data=st.data())
def test_an_argument_that_differs_is_named(data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = 3 * data.draw(st.integers(0, len(job.programs[0]) // 3 - 1))
    _change(job, place, lambda call: replace(call, reduce="max"), rank)
    found = analyse(job.histories()).findings[0]
    assert (found.kind, found.ranks, found.sequence) == (Kind.ARGUMENTS, (rank,), place)
    assert "reduce=max" in found.text


@given(data=st.data())
def test_a_rank_that_stops_is_the_one_that_is_waited_for(data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = data.draw(st.integers(1, len(job.programs[0]) - 1))
    kind, ending = data.draw(
        st.sampled_from(
            [
                (Kind.NOT_ENTERED, EndingKind.RUNNING),
                (Kind.MISSING_RANK, EndingKind.EXIT),
                (Kind.CRASH, EndingKind.EXCEPTION),
                (Kind.CRASH, EndingKind.SIGNAL),
                (Kind.CRASH, EndingKind.GONE),
            ]
        )
    )
    job.programs[rank] = job.programs[rank][:place]
    job.endings[rank] = ending
    job.capacity = data.draw(st.integers(2, 100))
    found = analyse(job.histories()).findings[0]
    assert (found.kind, found.ranks, found.sequence) == (kind, (rank,), place)


@given(data=st.data())
def test_a_rank_without_a_dump_is_missing_or_known_to_be_dead(data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = data.draw(st.integers(1, len(job.programs[0]) - 1))
    job.programs[rank] = job.programs[rank][:place]
    job.without_dump = frozenset({rank})
    found = analyse(job.histories(), world_size=len(job.programs)).findings[0]
    assert (found.kind, found.ranks, found.sequence) == (Kind.MISSING_RANK, (rank,), place)
    dead = analyse(job.histories(), world_size=len(job.programs), gone={rank: "killed"})
    assert (dead.findings[0].kind, dead.findings[0].ranks) == (Kind.CRASH, (rank,))
    assert "killed" in dead.findings[0].text


@given(data=st.data())
def test_a_branch_that_one_rank_takes_is_named_although_the_calls_agree(
    data: st.DataObject,
) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = data.draw(st.integers(0, len(job.programs[0]) - 2))
    extra = replace(job.programs[rank][place], site=50)
    job.programs[rank].insert(place, extra)
    for other, program in enumerate(job.programs):
        if other != rank:
            job.endings[other] = EndingKind.EXIT
            assert program
    report = analyse(job.histories())
    assert report.findings[0].kind is Kind.BRANCH
    assert report.findings[0].ranks == (rank,)


@given(data=st.data())
def test_asynchronous_calls_in_another_order_are_named(data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    histories = job.histories()
    last = max(record.sequence for record in histories[0].records)
    calls = [("all_reduce", (3,), 21), ("all_reduce", (9,), 22)]
    issued = []
    for history in histories:
        mine = calls[::-1] if history.rank == rank else calls
        now = (history.dumped or 0) - 5 * _SECOND
        more = tuple(
            Record(
                "0", last + 1 + number, op, (TensorSpec(shape, "float32"),),
                site=line(site), entered=now, state=State.STARTED,
            )
            for number, (op, shape, site) in enumerate(mine)
        )  # fmt: skip
        issued.append(replace(history, records=history.records + more))
    found = analyse(issued).findings[0]
    assert (found.kind, found.ranks, found.sequence) == (Kind.ORDER, (rank,), last + 1)


@given(data=st.data())
def test_late_ranks_are_named_although_clocks_are_wrong(data: st.DataObject) -> None:
    job = data.draw(_jobs())
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    place = data.draw(st.integers(0, len(job.programs[0]) - 1))
    # The broadcast says nothing about clocks, so the collectives around it have to.
    job.delays[rank, place] = 3 * _SECOND
    report = analyse(job.histories())
    assert [(found.kind, found.ranks) for found in report.findings] == [(Kind.STRAGGLER, (rank,))]


@given(_jobs(), st.data())
def test_a_rank_that_is_always_late_is_a_straggler(job: Job, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(job.programs) - 1))
    # Between hosts it could as well be a clock that is behind.
    job.hosts = 1
    job.skews = {}
    job.programs = [list(_STEP[:1]) * 20 for _ in job.programs]
    for place in range(20):
        job.delays[rank, place] = _SECOND // 20
    found = analyse(job.histories()).findings[0]
    assert (found.kind, found.ranks) == (Kind.STRAGGLER, (rank,))
    assert "20 collectives" in found.text


def test_a_rank_that_waits_in_a_subgroup_is_not_blamed() -> None:
    everywhere, pair = Call("all_reduce", site=1), Call("all_reduce", site=2, group="pair")
    job = Job(
        groups={"0": (0, 1, 2, 3), "pair": (2, 3)},
        programs=[
            [everywhere] * 3,
            [everywhere] * 3,
            [everywhere, pair, everywhere, pair, everywhere],
            [everywhere, pair, everywhere],
        ],
    )
    report = analyse(job.histories())
    assert [(found.kind, found.ranks) for found in report.findings] == [(Kind.NOT_ENTERED, (3,))]


def test_groups_of_one_name_and_different_ranks_are_kept_apart() -> None:
    call = Call("all_reduce", (4,), group="split")
    left = Job({"split": (0, 1)}, [[call] * 3, [call] * 3]).histories()
    right = Job({"split": (2, 3)}, [[], [], [replace(call, shape=(9,))] * 3] * 2)
    right.programs = [[], [], [replace(call, shape=(9,))] * 3, [replace(call, shape=(9,))] * 3]
    histories = [*left, *right.histories()[2:]]
    report = analyse([replace(history, world_size=4) for history in histories])
    assert report.outcome is Outcome.HEALTHY


def test_ranks_that_wait_for_one_another_in_two_groups_are_a_circle() -> None:
    one, other = Call("all_reduce", group="a", site=1), Call("all_reduce", group="b", site=2)
    job = Job({"a": (0, 1), "b": (0, 1)}, [[one, other], [other, one]])
    found = analyse(job.histories()).findings
    assert [(f.kind, f.ranks) for f in found] == [(Kind.ORDER, (0, 1))]
    assert "rank 0 waits for 1" in found[0].text
    assert "rank 1 waits for 0" in found[0].text


def _message(op: str, peer: int, number: int, *, over: bool, shape: int = 4) -> Record:
    spec = (TensorSpec((shape,), "float32"),)
    return Record(
        "0", number, op, spec if op == "send" else (), () if op == "send" else spec,
        peer=peer, site=line(30 + number), entered=10**9 + number,
        state=State.COMPLETED if over else State.STARTED,
    )  # fmt: skip


def test_a_receive_whose_send_is_missing_waits_for_the_sender() -> None:
    receiver, sender = Job({"0": (0, 1)}, [[], []]).histories()
    receiver = replace(
        receiver,
        records=(_message("recv", 1, 0, over=True), _message("recv", 1, 1, over=False)),
        dumped=10**11,
    )
    sender = replace(sender, records=(_message("send", 0, 0, over=True),), dumped=10**11)
    found = analyse([receiver, sender]).findings
    assert [(f.kind, f.ranks, f.sequence) for f in found] == [(Kind.NOT_ENTERED, (1,), 1)]
    answered = replace(sender, records=(*sender.records, _message("send", 0, 1, over=True)))
    assert analyse([receiver, answered]).outcome is Outcome.HEALTHY


def test_a_message_of_another_size_is_a_shape_mismatch() -> None:
    receiver, sender = Job({"0": (0, 1)}, [[], []]).histories()
    receiver = replace(receiver, records=(_message("recv", 1, 0, over=False, shape=8),))
    sender = replace(sender, records=(_message("send", 0, 0, over=True),))
    found = analyse([receiver, sender]).findings[0]
    assert (found.kind, found.ranks) == (Kind.SHAPE, (0, 1))


def test_uneven_gathers_and_exchanges_that_fit_are_healthy_and_others_are_not() -> None:
    sizes = [3, 5]
    spec = [TensorSpec((size,), "float32") for size in sizes]

    def histories(room: list[TensorSpec]) -> list[Record]:
        return [Record("0", 0, "all_gather", (spec[rank],), tuple(room)) for rank in (0, 1)]

    base = Job({"0": (0, 1)}, [[], []]).histories()
    even = [replace(h, records=(r,)) for h, r in zip(base, histories(spec), strict=True)]
    assert analyse(even).outcome is Outcome.HEALTHY
    odd = [replace(h, records=(r,)) for h, r in zip(base, histories(spec[::-1]), strict=True)]
    assert analyse(odd).findings[0].kind is Kind.SHAPE
    splits = [("3 5", "3 4"), ("4 6", "5 6")]

    def exchange(rank: int, taken: str, given: str) -> Record:
        count = [sum(map(int, side.split())) for side in (given, taken)]
        return Record(
            "0", 0, "all_to_all_single",
            (TensorSpec((count[0], 2), "float32"),), (TensorSpec((count[1], 2), "float32"),),
            (("splits", f"{taken}/{given}"),),
        )  # fmt: skip

    fits = [exchange(rank, *pair) for rank, pair in enumerate(splits)]
    good = [replace(h, records=(r,)) for h, r in zip(base, fits, strict=True)]
    assert analyse(good).outcome is Outcome.HEALTHY
    fits[1] = exchange(1, "4 6", "4 7")
    bad = [replace(h, records=(r,)) for h, r in zip(base, fits, strict=True)]
    assert analyse(bad).findings[0].kind is Kind.SHAPE


def test_a_dump_taken_before_the_others_went_on_accuses_nobody() -> None:
    job = Job({"0": (0, 1)}, [[*_STEP, _STEP[0]], [*_STEP]])
    ahead, behind = job.histories()
    early = replace(behind, dumped=behind.records[-1].completed)
    assert analyse([ahead, early]).outcome is Outcome.HEALTHY
    assert analyse([ahead, behind]).findings[0].kind is Kind.NOT_ENTERED


def test_a_dump_from_around_the_end_of_a_call_shows_no_hang() -> None:
    one, other = Job({"0": (0, 1)}, [[*_STEP[:1]]] * 2, boots={1: 77}).histories()
    call = one.records[0]
    open_still = replace(call, completed=None, state=State.STARTED)
    early = replace(one, records=(open_still,), dumped=call.entered + 2 * _SECOND)
    ended = replace(other.records[0], completed=(early.dumped or 0) + 77 + 1000)
    assert analyse([early, replace(other, records=(ended,))]).findings == ()
    much_later = replace(early, dumped=(early.dumped or 0) + 9 * _SECOND)
    found = analyse([much_later, replace(other, records=(ended,))]).findings
    assert [one.kind for one in found] == [Kind.BACKEND]


def test_recorders_that_began_at_different_times_are_aligned_by_what_they_saw() -> None:
    program = [Call("all_reduce", (4 + number,), site=number % 5) for number in range(12)]
    job = Job({"0": (0, 1)}, [program, program[:-1]])
    one, other = job.histories()
    late = tuple(
        replace(record, sequence=record.sequence - 4)
        for record in other.records
        if record.sequence >= 4
    )
    group = replace(other.groups["0"], issued=7, numbered=False)
    other = replace(other, records=late, groups={"0": group})
    found = analyse([one, other]).findings
    assert [(f.kind, f.ranks, f.sequence) for f in found] == [(Kind.NOT_ENTERED, (1,), 11)]


def _conditional(line_number: int, branch: Branch | None, upcoming: tuple[str, ...] = ()) -> Frame:
    return Frame("train.py", line_number, "train", (branch,) if branch else (), upcoming)


def _stuck(frames: list[Frame], ops: list[str]) -> list[Kind]:
    job = Job({"0": (0, 1)}, [[Call(ops[0])], [Call(ops[1])]])
    histories = [
        replace(history, records=(replace(history.records[0], site=(frame,)),))
        for history, frame in zip(job.histories(), frames, strict=True)
    ]
    return [found.kind for found in analyse(histories).findings]


def test_the_source_distinguishes_a_branch_from_another_order() -> None:
    branch = Branch(10, 11, "body", "loss > limit")
    past = _conditional(12, None)
    assert _stuck([_conditional(11, branch), past], ["all_reduce", "broadcast"]) == [Kind.BRANCH]
    frames = [_conditional(11, None, ("broadcast",)), _conditional(21, None, ("all_reduce",))]
    assert _stuck(frames, ["all_reduce", "broadcast"]) == [Kind.ORDER]
    arms = [replace(branch, end=14, arm=arm) for arm in ("body", "else")]
    frames = [_conditional(11, arms[0]), _conditional(13, arms[1])]
    assert _stuck(frames, ["all_reduce", "broadcast"]) == [Kind.OP]


def test_no_dump_at_all_is_inconclusive() -> None:
    assert analyse([]).outcome is Outcome.INCONCLUSIVE
    healthy = Job({"0": (0, 1)}, [list(_STEP)] * 2)
    healthy.without_dump = frozenset({1})
    report = analyse(healthy.histories())
    assert report.without_dump == (1,)


@settings(max_examples=30)
@given(_jobs(sizes=(2, 2)), st.sampled_from(list(_CHANGES)))
def test_of_two_ranks_that_differ_both_are_named(job: Job, kind: Kind) -> None:
    _change(job, 2, _CHANGES[kind], 1)
    found = analyse(job.histories()).findings[0]
    assert (found.kind, found.ranks) == (kind, (0, 1))


def test_what_is_told_of_ranks_is_checked() -> None:
    with pytest.raises(ValueError, match="world_size: expected an int of 1 to"):
        analyse([], world_size=0)
    with pytest.raises(TypeError, match=r"histories\[0\]: expected RankHistory, got 'x'"):
        analyse(["x"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="gone: expected an int, got 'x'"):
        analyse([], gone={"x": "killed"})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="patience: expected a finite number of at least 0"):
        analyse([], patience=-0.5)
