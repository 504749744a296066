"""What the others hear when a rank dies, stays away or does something else; what is left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from packages.collectives.tests.ranks import RanksError, default_store, run_ranks
from torchyard_collectives.shm import (
    ForkedProcessError,
    GroupClosedError,
    RankLostError,
    RankMismatchError,
    RankTimeoutError,
    SharedMemoryError,
)

# Far below the timeout of a group, and far above what a busy machine needs.
_SOON = 20.0

# What random kills happen in: sizes that go through every path, and no path twice in a row.
_STEPS: tuple[Callable[[], object], ...] = (
    lambda: dist.all_reduce(torch.ones(1)),
    lambda: dist.all_reduce(torch.ones(9000)),
    lambda: dist.all_reduce(torch.ones(2_000_000)),
    lambda: dist.barrier(),
    lambda: dist.broadcast(torch.ones(500_000), 1),
    lambda: dist.all_gather_into_tensor(
        torch.ones(300_000 * dist.get_world_size()), torch.ones(300_000)
    ),
    lambda: dist.reduce_scatter_tensor(
        torch.ones(90_000), torch.ones(90_000 * dist.get_world_size())
    ),
    lambda: dist.all_to_all_single(
        torch.ones(70_000 * dist.get_world_size()), torch.ones(70_000 * dist.get_world_size())
    ),
)


def _segments(maps: Path) -> set[str]:
    """Return the inodes of the segments that a process maps."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return set()
    return {line.split()[4] for line in lines if "memfd:torchyard" in line}


def _left_of(report: str) -> list[str]:
    """Return what is left of the segments that a survivor reports."""
    held = set(re.findall(r"segment (\d+)", report))
    assert held, report
    named = [str(path) for path in Path("/dev/shm").glob("*torchyard*")]
    everyones = Path("/proc").glob("[0-9]*/maps")
    return named + [str(maps) for maps in everyones if _segments(maps) & held]


def _survives(delay: float, victim: int) -> tuple[str, tuple[int, ...], float] | None:
    """Run collectives until one fails; the victim is killed from inside after a while."""
    dist.barrier()
    if dist.get_rank() == victim and os.fork() == 0:
        # The child kills its parent at a moment that no collective chooses.
        # It keeps nothing open by which others would take its parent for alive.
        os.closerange(3, 1024)
        time.sleep(delay)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    start = time.monotonic()
    step = 0
    while time.monotonic() - start < delay + 30:
        entered = time.monotonic()
        try:
            _STEPS[step % len(_STEPS)]()
        except SharedMemoryError as error:
            return str(error), error.ranks, time.monotonic() - entered
        step += 1
    return None


def kill_at_random(seed: int, times: int, world: int) -> None:
    """Kill a rank at random moments inside of collectives, and check what the others report."""
    chosen = random.Random(seed)
    for _ in range(times):
        victim, delay = chosen.randrange(world), chosen.uniform(0.0, 0.25)
        with pytest.raises(RanksError) as caught:
            run_ranks(world, _reporting, delay, victim, backend="shm", timeout=90, fresh=True)
        for rank, report in enumerate(caught.value.reports):
            if rank == victim:
                assert "exit code -9" in report
            else:
                assert f"survived: rank {victim} (process" in report, report
                assert not _left_of(report)


def _reporting(delay: float, victim: int) -> None:
    """Raise what a survivor saw, since the launcher shows failures of all ranks."""
    told = _survives(delay, victim)
    assert told is not None, "nothing failed"
    message, ranks, seconds = told
    assert ranks == (victim,), told
    assert seconds < _SOON, told
    named = message[message.index("rank ") :]
    held = " and ".join(f"segment {inode}" for inode in _segments(Path("/proc/self/maps")))
    raise AssertionError(f"survived: {named}; held {held}")


def test_a_killed_rank_is_named_on_all_others() -> None:
    kill_at_random(seed=0, times=3, world=3)


@pytest.mark.sweep
@pytest.mark.parametrize("world", [2, 3])
def test_a_rank_killed_at_a_hundred_moments_is_named_each_time(world: int) -> None:
    kill_at_random(seed=world, times=50, world=world)


def _group_of_all() -> dist.ProcessGroup:
    """Return a group that may be broken: the default one is kept for the next test."""
    group = dist.new_group(list(range(dist.get_world_size())))
    assert group is not None
    return group


def _caught(call: Callable[[], object], kind: type[SharedMemoryError]) -> tuple[str, float]:
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value), time.monotonic() - start


def _stays_away() -> None:
    group = _group_of_all()
    if dist.get_rank() == 1:
        default_store().wait(["stays away"])
        with pytest.raises(RankTimeoutError, match="as rank 0 reported before"):
            dist.all_reduce(torch.ones(1), group=group)
        return
    group.set_timeout(timedelta(seconds=1))
    text, seconds = _caught(lambda: dist.all_reduce(torch.ones(1), group=group), RankTimeoutError)
    assert "all_reduce in group" in text
    assert "rank 1 (process" in text
    assert "after 1 s" in text
    assert 0.9 < seconds < _SOON
    # A group that gave up gives up at once.
    group.set_timeout(timedelta(seconds=3 * _SOON))
    text, seconds = _caught(lambda: dist.barrier(group), RankTimeoutError)
    assert seconds < _SOON
    default_store().set("stays away", "over")


def test_a_rank_that_stays_away_is_named_at_the_timeout() -> None:
    run_ranks(2, _stays_away, backend="shm")


def _no_message() -> None:
    group = _group_of_all()
    if dist.get_rank() == 0:
        group.set_timeout(timedelta(seconds=1))
        text, seconds = _caught(lambda: dist.recv(torch.ones(1), 1, group), RankTimeoutError)
        assert "recv in group" in text
        assert "rank 1 (process" in text
        assert 0.9 < seconds < _SOON
        default_store().set("no message", "over")
    else:
        default_store().wait(["no message"])


def _sender_dies() -> None:
    if dist.get_rank() == 1:
        dist.send(torch.full((4,), 5.0), 0)
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.empty(4)
    time.sleep(0.5)
    dist.recv(tensor, 1)
    assert (tensor == 5).all()
    text, seconds = _caught(lambda: dist.recv(tensor, 1), RankLostError)
    assert seconds < _SOON
    raise AssertionError(f"as it should: {text}")


def test_messages_fail_with_the_rank_that_should_have_sent_them() -> None:
    run_ranks(2, _no_message, backend="shm")
    with pytest.raises(
        RanksError, match=r"as it should: recv in group.*rank 1 \(process \d+\) died"
    ):
        run_ranks(2, _sender_dies, backend="shm", fresh=True)


def _differ(mine: str, theirs: str, expected: str) -> None:
    group = _group_of_all()
    calls: dict[str, Callable[[], object]] = {
        "sum": lambda: dist.all_reduce(torch.ones(4), group=group),
        "longer": lambda: dist.all_reduce(torch.ones(60_000), group=group),
        "max": lambda: dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX, group=group),
        "double": lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64), group=group),
        "broadcast": lambda: dist.broadcast(torch.ones(4), 0, group=group),
        "broadcast 1": lambda: dist.broadcast(torch.ones(4), 1, group=group),
        "barrier": lambda: dist.barrier(group),
        "exchange": lambda: dist.all_to_all_single(
            torch.ones(3), torch.ones(4), [2, 1], [2, 2], group=group
        ),
        "other exchange": lambda: dist.all_to_all_single(
            torch.ones(5), torch.ones(4), [3, 2], [2, 2], group=group
        ),
    }
    name = mine if dist.get_rank() == 0 else theirs
    # Whoever comes first sees the difference, or hears of it from the other.
    text, seconds = _caught(calls[name], RankMismatchError)
    assert seconds < _SOON
    if dist.get_rank() == 0 and "reported before" not in text:
        assert expected in text, text


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ("sum", "longer", "of 240000 bytes, this rank in all_reduce (sum, float32) of 16 bytes"),
        ("sum", "max", "is in all_reduce (max, float32) of 16 bytes"),
        ("sum", "double", "is in all_reduce (sum, float64)"),
        ("sum", "broadcast", "is in broadcast with root 0 of 16 bytes"),
        ("broadcast", "broadcast 1", "is in broadcast with root 1"),
        ("barrier", "sum", "this rank in barrier"),
        ("exchange", "other exchange", "is in all_to_all of 8 bytes, this rank in all_to_all of 4"),
    ],
)
def test_the_error_shows_how_ranks_differ(mine: str, theirs: str, expected: str) -> None:
    run_ranks(2, _differ, mine, theirs, expected, backend="shm")


def _leaves() -> None:
    group = _group_of_all()
    dist.barrier(group)
    if dist.get_rank() == 0:
        text, seconds = _caught(lambda: dist.all_reduce(torch.ones(1), group=group), RankLostError)
        assert "rank 1 (process" in text
        assert "has left the group" in text
        assert seconds < _SOON
    else:
        dist.destroy_process_group(group)


def _destroyed() -> None:
    group = _group_of_all()
    dist.barrier(group)
    work = group.recv([torch.ones(1)], 1 - dist.get_rank(), 0)
    group.shutdown()
    for call in (lambda: group.barrier().wait(), work.wait):
        _caught(call, GroupClosedError)


def test_leaving_a_group_is_not_dying() -> None:
    run_ranks(2, _leaves, backend="shm")
    run_ranks(2, _destroyed, backend="shm")


def _forks() -> None:
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"nothing"
        try:
            dist.all_reduce(tensor)
        except ForkedProcessError as error:
            told = str(error).encode()
        os.write(write, told)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"this process was forked from a rank" in os.read(read, 1000)
    # The child's end is not the rank's.
    for _ in range(3):
        dist.all_reduce(tensor)
    assert tensor.item() == 16


def test_a_forked_child_is_no_rank_and_leaves_without_harm() -> None:
    run_ranks(2, _forks, backend="shm")


def _interrupted() -> None:
    group = _group_of_all()
    if dist.get_rank() == 0:
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        signal.setitimer(signal.ITIMER_REAL, 1)
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dist.all_reduce(torch.ones(1), group=group)
        assert time.monotonic() - start < _SOON
        default_store().set("interrupted", "over")
    else:
        default_store().wait(["interrupted"])
    # It is half done, so nobody can go on with it.
    text, _ = _caught(lambda: dist.all_reduce(torch.ones(1), group=group), GroupClosedError)
    assert "given up" in text


def test_a_signal_ends_a_wait() -> None:
    run_ranks(2, _interrupted, backend="shm")
