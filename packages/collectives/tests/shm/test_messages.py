"""Messages, work that others wait for, groups of some ranks, and what torch builds on them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from packages.collectives.tests.ranks import run_ranks

_BACKENDS = ("gloo", "shm")


def _ring(sizes: tuple[int, ...]) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % world, (rank - 1) % world
    for size in sizes:
        mine, theirs = torch.full((size,), float(rank)), torch.empty(size)
        # Everyone sends first: nobody may wait for room before receiving.
        works = [dist.isend(mine, after, tag=1), dist.irecv(theirs, before, tag=1)]
        for work in works:
            work.wait()
        assert (theirs == before).all()
        operations = [
            dist.P2POp(dist.isend, mine + 1, before),
            dist.P2POp(dist.irecv, theirs, after),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert (theirs == after + 1).all()


@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("world", [2, 4])
def test_messages_go_round_in_a_ring(world: int, backend: str) -> None:
    run_ranks(world, _ring, (1, 100, 131_071, 131_072, 1_000_003), backend=backend)


def _tags() -> None:
    rank = dist.get_rank()
    if rank == 0:
        works = [dist.isend(torch.full((70_000,), float(tag)), 1, tag=tag) for tag in range(5)]
        works.append(dist.isend(torch.zeros(0), 1, tag=9))
        for work in works:
            work.wait()
    elif rank == 1:
        received = {tag: torch.empty(70_000) for tag in (3, 0, 4, 2, 1)}
        works = [dist.irecv(tensor, 0, tag=tag) for tag, tensor in received.items()]
        for work in reversed(works):
            work.wait()
        assert all((tensor == tag).all() for tag, tensor in received.items())
        dist.recv(torch.zeros(0), 0, tag=9)
    dist.barrier()


@pytest.mark.parametrize("backend", _BACKENDS)
def test_tags_decide_and_not_the_order(backend: str) -> None:
    run_ranks(2, _tags, backend=backend)


def _anyone() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        heard = []
        for _ in range(world - 1):
            tensor = torch.empty(3)
            source = dist.recv(tensor, tag=4)
            assert (tensor == source).all()
            heard.append(source)
        assert sorted(heard) == list(range(1, world))
    else:
        dist.send(torch.full((3,), float(rank)), 0, tag=4)
    dist.barrier()


@pytest.mark.parametrize("backend", _BACKENDS)
def test_a_message_from_any_source_has_its_rank(backend: str) -> None:
    run_ranks(3, _anyone, backend=backend)


def _to_itself() -> None:
    rank = dist.get_rank()
    mine, copy = torch.arange(400_000) + rank, torch.empty(400_000, dtype=torch.int64)
    sent, received = dist.isend(mine, rank), dist.irecv(copy, rank)
    sent.wait()
    received.wait()
    assert torch.equal(mine, copy)


def _sent_and_forgotten() -> None:
    rank = dist.get_rank()
    tensor = torch.empty(1_000_000)
    if rank == 0:
        # Nobody waits for it: the group's own thread sends what has no room at first.
        dist.isend(torch.full((1_000_000,), 7.0), 1)
        dist.all_reduce(tensor.zero_())
    else:
        dist.recv(tensor, 0)
        assert (tensor == 7).all()
        dist.all_reduce(tensor.zero_())
    with pytest.raises(ValueError, match="send: expected one contiguous tensor"):
        dist.isend(torch.zeros(4, 4).t(), 1 - rank)


def test_a_rank_may_send_to_itself_and_forget_what_it_sent() -> None:
    run_ranks(2, _to_itself, backend="shm")
    run_ranks(2, _sent_and_forgotten, backend="shm")


def _out_of_order() -> None:
    """Start on two groups in different orders, as work that nobody waits for yet may be."""
    rank = dist.get_rank()
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    tensors = [torch.full((n,), rank + 1.0) for n in (5, 200_000)]
    order = (0, 1) if rank == 0 else (1, 0)
    works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
    for work in works:
        work.wait()
        assert work.is_completed()
    assert all((tensor == 3).all() for tensor in tensors)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert torch.equal(future.wait()[0], torch.full((3,), 2.0))


@pytest.mark.parametrize("backend", _BACKENDS)
def test_work_that_nobody_waits_for_goes_on(backend: str) -> None:
    run_ranks(2, _out_of_order, backend=backend)


def _waited_after() -> None:
    tensor = torch.full((100_000,), dist.get_rank() + 1.0)
    work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert (tensor == 6).all()
    work.wait()


def test_a_call_that_waits_comes_after_those_before_it() -> None:
    run_ranks(2, _waited_after, backend="shm")


def _threads() -> None:
    """Let threads of a process call collectives of one group each."""
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(list(range(world))) for _ in range(3)]
    sums = [torch.full((70_000,), float(i + rank)) for i in range(3)]

    def run(i: int) -> None:
        for _ in range(5):
            dist.all_reduce(sums[i], dist.ReduceOp.MAX, group=groups[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((tensor == i + world - 1).all() for i, tensor in enumerate(sums))


def test_threads_may_use_groups_of_their_own() -> None:
    run_ranks(2, _threads, backend="shm")


def _subgroups() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    odd = dist.new_group(list(range(1, world, 2)))
    reverse = dist.new_group([3, 1, 0])
    if rank % 2:
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor, group=odd)
        assert tensor.item() == 4
    if rank in (0, 1, 3):
        # Numbered as torch numbers them, whatever the order given.
        listed = [torch.empty(1) for _ in range(3)]
        dist.all_gather(listed, torch.tensor([float(rank)]), group=reverse)
        assert [int(each) for each in listed] == dist.get_process_group_ranks(reverse)
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, src=3, group=reverse)
        assert tensor.item() == 3
        dist.destroy_process_group(reverse)
    dist.barrier()
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert [each["rank"] for each in objects] == list(range(world))
    told = [rank if rank == 2 else None]
    dist.broadcast_object_list(told, src=2)
    assert told == [2]


@pytest.mark.parametrize("backend", _BACKENDS)
def test_groups_of_some_ranks_and_objects(backend: str) -> None:
    run_ranks(4, _subgroups, backend=backend)


def _functional() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    group = dist.group.WORLD
    mine = torch.full((world, 2), float(rank))
    assert (functional.all_reduce(mine, "sum", group) == world * (world - 1) / 2).all()
    gathered = functional.all_gather_tensor(mine, 0, group)
    assert torch.equal(gathered[:, 0], torch.arange(world).repeat_interleave(world).float())
    part = functional.reduce_scatter_tensor(mine, "avg", 0, group)
    assert torch.allclose(part, torch.full((1, 2), (world - 1) / 2))
    swapped = functional.all_to_all_single(mine, [1] * world, [1] * world, group)
    assert torch.equal(swapped[:, 0], torch.arange(world).float())
    assert (functional.broadcast(mine, 1, group) == 1).all()
    many = functional.all_reduce_coalesced([mine, mine + 1], "max", group)
    assert (many[1] == world).all()
    permuted = functional.permute_tensor(mine[0], [(r + 1) % world for r in range(world)], group)
    assert (permuted == (rank - 1) % world).all()


def _compiled() -> None:
    group = dist.group.WORLD

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(x: torch.Tensor) -> torch.Tensor:
        summed = functional.all_reduce(x * 2, "sum", group)
        return functional.all_gather_tensor(summed + 1, 0, group)

    out = step(torch.full((3,), dist.get_rank() + 1.0))
    assert torch.equal(out, torch.full((6,), 7.0))
    torch.compiler.reset()


@pytest.mark.parametrize("backend", [pytest.param("gloo", marks=pytest.mark.sweep), "shm"])
def test_functional_and_compiled_collectives(backend: str) -> None:
    run_ranks(2, _functional, backend=backend)
    run_ranks(2, _compiled, backend=backend)


def _other_devices() -> None:
    dist.all_reduce(torch.empty(3, device="meta"))
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()
    with pytest.raises(ValueError, match=r"expected tensors on cpu, got one on meta.*cpu:shm,meta"):
        dist.all_reduce(torch.empty(3, device="meta"), group=dist.new_group(backend="shm"))


def test_other_devices_tensors_go_to_the_backend_named_for_them() -> None:
    run_ranks(2, _other_devices, backend="cpu:shm,meta:fake")
