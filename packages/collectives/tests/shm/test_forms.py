"""The forms of a process group's methods that torch's binding has, on gloo and on shm alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from packages.collectives.tests.ranks import run_ranks

_TIME = timedelta(seconds=60)
_MAX = dist.ReduceOp.MAX
_SUM = dist.ReduceOp.SUM


def _mine(rank: int, *shape: int) -> Tensor:
    return torch.full(shape, float(rank + 1))


def _empties(world: int) -> list[Tensor]:
    return [torch.empty(2) for _ in range(world)]


def _group() -> Any:
    # torch's stubs know the binding's forms with one tensor, and not the named ones.
    return dist.group.WORLD


def _reduced(*args: Any, name: str = "allreduce", shape: tuple[int, ...] = (3, 2)) -> Tensor:
    tensor = _mine(dist.get_rank(), *shape)
    getattr(_group(), name)(tensor, *args).wait()
    return tensor


def _all_reduces() -> list[Tensor]:
    rank, group = dist.get_rank(), _group()
    named, listed, scalar = _mine(rank, 2), [_mine(rank, 2)], _mine(rank)
    group.allreduce(tensor=named, op=_MAX, timeout=_TIME).wait()
    group.allreduce(listed, _MAX).wait()
    group.allreduce(scalar).wait()
    with_options = [_mine(rank, 4)]
    options = dist.AllreduceOptions()
    options.reduceOp = _MAX
    group.allreduce(with_options, opts=options).wait()
    alone = [_mine(rank, 4)]
    group.allreduce(alone).wait()
    alone.extend(with_options)
    return [_reduced(), _reduced(_MAX), _reduced(_SUM, _TIME), named, *listed, scalar, *alone]


def _rooted() -> list[Tensor]:
    rank, world, group = dist.get_rank(), dist.get_world_size(), _group()
    results = [_reduced(1, name="broadcast"), _reduced(0, _TIME, name="broadcast")]
    named = _mine(rank, 2)
    group.broadcast(tensor=named, root=1).wait()
    for args in ((0,), (1, _MAX), (1, _SUM, _TIME)):
        found = _reduced(*args, name="reduce")
        results.append(found if rank == args[0] else torch.zeros(0))
    outs = _empties(world) if rank == 1 else []
    group.gather(outs, _mine(rank, 2), 1).wait()
    out = torch.empty(2)
    group.scatter(
        out, [_mine(r + 3, 2) for r in range(world)] if rank == 0 else [], 0, _TIME
    ).wait()
    return [*results, named, *outs, out]


def _spread() -> list[Tensor]:
    rank, world, group = dist.get_rank(), dist.get_world_size(), _group()
    gathered, timed = _empties(world), _empties(world)
    group.allgather(gathered, _mine(rank, 2)).wait()
    group.allgather(output_tensors=timed, input_tensor=_mine(rank, 2), timeout=_TIME).wait()
    single, base = torch.empty(2 * world), torch.empty(2 * world)
    group._allgather_base(single, _mine(rank, 2)).wait()
    group._allgather_base(output=base, input=_mine(rank, 2)).wait()
    parts = [torch.empty(2) for _ in range(3)]
    sources = [_mine(rank + r, 2) for r in range(world)]
    group.reduce_scatter(parts[0], sources).wait()
    group.reduce_scatter(parts[1], sources, _MAX, _TIME).wait()
    group._reduce_scatter_base(parts[2], torch.cat(sources)).wait()
    rows = torch.arange(2.0 * world).view(world, 2) + 10 * rank
    exchanged = [torch.empty_like(rows) for _ in range(2)]
    group.alltoall_base(exchanged[0], rows, [], []).wait()
    even = [1] * world
    group.alltoall_base(exchanged[1], rows, even, even, timeout=_TIME).wait()
    lists = [_empties(world) for _ in range(2)]
    group.allgather_coalesced(
        [[lists[i][r] for i in range(2)] for r in range(world)], [_mine(rank, 2)] * 2
    ).wait()
    return [*gathered, *timed, single, base, *parts, *exchanged, *lists[0], *lists[1]]


def _barriers_and_messages() -> list[Tensor]:
    rank, group = dist.get_rank(), _group()
    group.barrier().wait()
    group.barrier(_TIME).wait()
    group.barrier(timeout=_TIME).wait()
    group.barrier(dist.BarrierOptions()).wait()
    group.monitored_barrier(_TIME, True)
    theirs = torch.empty(2)
    sent = group.send([_mine(rank, 2)], 1 - rank, 3)
    group.recv([theirs], 1 - rank, 3).wait()
    sent.wait()
    sent = group.send(tensors=[_mine(rank, 2)], dstRank=1 - rank, tag=4)
    group.recv(tensors=[theirs], srcRank=1 - rank, tag=4).wait()
    sent.wait()
    return [theirs]


_PARTS = [_all_reduces, _rooted, _spread, _barriers_and_messages]


@pytest.mark.parametrize("part", _PARTS, ids=lambda part: part.__name__[1:])
def test_methods_take_every_form_that_the_binding_has(part: Callable[[], list[Tensor]]) -> None:
    expected = run_ranks(2, part, backend="gloo")
    for theirs, ours in zip(expected, run_ranks(2, part, backend="shm"), strict=True):
        assert len(theirs) == len(ours)
        for one, other in zip(theirs, ours, strict=True):
            assert torch.equal(one, other)


def _refused() -> None:
    group, tensor = _group(), torch.ones(2)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("allreduce", (tensor, "sum")),
        ("allreduce", (3,)),
        ("broadcast", (tensor,)),
        ("broadcast", (tensor, True)),
        ("reduce", (tensor, 0.5)),
        ("allgather", (tensor, tensor)),
        ("gather", ([tensor], [tensor], 0)),
        ("barrier", (5,)),
        ("alltoall_base", (tensor, tensor, [1.5], [])),
    ]
    for name, args in calls:
        with pytest.raises(TypeError, match=r"expected arguments \(.*, got \("):
            getattr(group, name)(*args)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((2,), 2.0))


def test_a_call_in_no_form_names_the_forms() -> None:
    run_ranks(2, _refused, backend="shm")
