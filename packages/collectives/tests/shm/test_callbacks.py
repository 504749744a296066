"""Callbacks of futures that start collectives and wait for them, and waits that end in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel

from packages.collectives.tests.ranks import default_store, run_ranks
from torchyard_collectives.shm import (
    RankTimeoutError,
    SharedMemoryError,
    WaitTimeoutError,
)


def _by_future(tensor: Tensor) -> None:
    dist.all_reduce(tensor, async_op=True).get_future().wait()


def _by_work(tensor: Tensor) -> None:
    dist.all_reduce(tensor, async_op=True).wait()


_WAYS: tuple[Callable[[Tensor], object], ...] = (_by_future, _by_work, dist.all_reduce)


def _nested(depth: int, way: int) -> None:
    """Start a collective whose callback starts one, and so on, and wait for the outermost."""
    world = dist.get_world_size()
    reached: list[int] = []

    def begin(level: int) -> torch.futures.Future[Any]:
        work = dist.all_reduce(torch.ones(3 + level), async_op=True)

        def callback(future: torch.futures.Future[Any]) -> int:
            assert torch.equal(future.value()[0], torch.full((3 + level,), float(world)))
            inner = torch.ones(2)
            _WAYS[way](inner)
            assert torch.equal(inner, torch.full((2,), float(world)))
            reached.append(level)
            return begin(level + 1).wait() if level < depth else level

        return work.get_future().then(callback)

    assert begin(0).wait() == depth
    assert reached == list(range(depth + 1))
    # The order of operations is whole afterwards.
    last = torch.ones(5)
    dist.all_reduce(last)
    assert torch.equal(last, torch.full((5,), float(world)))


@pytest.mark.parametrize("way", range(len(_WAYS)), ids=["future", "work", "call"])
def test_a_callback_may_start_a_collective_and_wait_for_it(way: int) -> None:
    for depth in (0, 4):
        run_ranks(3, _nested, depth, way, backend="shm", timeout=60)


def _while_the_caller_waits() -> None:
    """Let callbacks hold a lock that the caller has while it waits for a later collective."""
    lock, done = threading.Lock(), threading.Event()

    def callback(future: torch.futures.Future[Any]) -> None:
        with lock:
            done.set()

    # A callback that is added to a future that is done runs in the thread that adds it, which has
    # the lock. So rank 0 begins when rank 1 has added its own, and adds none.
    if dist.get_rank() == 0:
        default_store().wait(["added"], timedelta(seconds=60))
        dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(4))
        return
    with lock:
        first = dist.all_reduce(torch.ones(4), async_op=True)
        first.get_future().add_done_callback(callback)
        default_store().set("added", "1")
        second = dist.all_reduce(torch.ones(4), async_op=True)
        second.wait()
        first.wait()
        assert first.get_future().done()
    assert done.wait(60)


def _many_wait() -> None:
    tensors = [torch.ones(n) for n in (1, 70_000, 9)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future().then(lambda future: future.value()[0]) for work in works]
    failed: list[BaseException] = []

    def wait(i: int) -> None:
        try:
            works[i % 3].wait()
            assert torch.equal(futures[(i + 1) % 3].wait(), tensors[(i + 1) % 3])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert all((tensor == dist.get_world_size()).all() for tensor in tensors)


def test_a_callback_runs_while_another_thread_waits() -> None:
    run_ranks(2, _while_the_caller_waits, backend="shm", timeout=60)
    run_ranks(2, _many_wait, backend="shm", timeout=60)


def _alone_in_a_callback() -> None:
    """Let one rank's callback wait for a collective that the other does not call."""
    group: Any = dist.new_group()
    work: Any = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    if dist.get_rank() == 0:

        def callback(future: torch.futures.Future[Any]) -> None:
            group.set_timeout(timedelta(seconds=1))
            _by_future_of(group)

        began = time.monotonic()
        with pytest.raises(RuntimeError, match=r"rank 1 .*did not come within the timeout"):
            work.get_future().then(callback).wait()
        assert time.monotonic() - began < 100
        default_store().set("over", "1")
    else:
        work.wait()
        default_store().wait(["over"], timedelta(seconds=120))


def _by_future_of(group: dist.ProcessGroup) -> None:
    dist.all_reduce(torch.ones(2), group=group, async_op=True).get_future().wait()


def test_a_wait_in_a_callback_ends_with_the_groups_timeout() -> None:
    run_ranks(2, _alone_in_a_callback, backend="shm", timeout=120)


def _impatient() -> None:
    if dist.get_rank() == 0:
        tensor = torch.ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(WaitTimeoutError, match=r"within 0.05 s; it goes on") as caught:
            work.wait(timedelta(seconds=0.05))
        assert isinstance(caught.value, TimeoutError)
        assert not isinstance(caught.value, RankTimeoutError)
        default_store().set("impatient", "1")
        work.wait(timedelta(seconds=100))
        assert torch.equal(tensor, torch.full((2,), 2.0))
    else:
        default_store().wait(["impatient"], timedelta(seconds=120))
        dist.all_reduce(torch.ones(2))


def test_a_wait_of_its_own_time_leaves_the_operation_under_way() -> None:
    run_ranks(2, _impatient, backend="shm", timeout=120)


def _destroyed_in_a_callback() -> None:
    """Destroy a group in a callback of its own."""
    group = dist.new_group()
    dist.barrier()
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    work.get_future().then(lambda future: dist.destroy_process_group(group)).wait()
    with pytest.raises((SharedMemoryError, ValueError)):
        dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


def test_a_callback_may_destroy_the_group() -> None:
    run_ranks(2, _destroyed_in_a_callback, backend="shm", timeout=60)


def _futures_of_messages() -> None:
    """Ask for the future of a receive before anything is sent."""
    rank = dist.get_rank()
    theirs = torch.empty(200_000)
    received = dist.irecv(theirs, 1 - rank)
    assert received is not None
    future = received.get_future().then(lambda done: float(done.value()[0].sum()))
    # Beside the group, since neither rank has sent anything yet.
    assert not future.done()
    default_store().set(f"has seen that it waits {rank}", "1")
    default_store().wait([f"has seen that it waits {1 - rank}"], timedelta(seconds=240))
    sent = dist.isend(torch.full((200_000,), float(rank)), 1 - rank)
    assert sent is not None
    sent.get_future().wait()
    assert future.wait() == 200_000.0 * (1 - rank)
    received.wait()


def test_the_future_of_a_message_waits_for_nothing() -> None:
    run_ranks(2, _futures_of_messages, backend="shm", timeout=60)


def _hooked(kind: str) -> list[Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 8)), bucket_cap_mb=1
    )
    if kind == "power":
        state = power.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        model.register_comm_hook(state, power.powerSGD_hook)
    elif kind == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    else:
        local = post_localSGD_hook.PostLocalSGDState(None, dist.new_group(), start_localSGD_iter=2)
        model.register_comm_hook(local, post_localSGD_hook.post_localSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(6, 24, generator=generator)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("kind", ["power", "fp16", "local"])
def test_hooks_of_ddp_train_as_on_gloo(kind: str) -> None:
    expected = run_ranks(2, _hooked, kind, backend="gloo")
    for theirs, ours in zip(expected, run_ranks(2, _hooked, kind, backend="shm"), strict=True):
        # The gradients are the same up to the order of two summands.
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
