"""Groups over several hosts, which a setting separates here, and two networks below."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from packages.collectives.tests.ranks import run_ranks

from .test_collectives import _exchanges, _moves, _values
from .test_messages import _anyone, _functional, _ring, _tags

# Which host each rank says that it is on.
_HOSTS = {"2+2": "aabb", "interleaved": "abab", "3+1": "aaab", "1+1+1+1": "abcd"}


def _on_hosts(hosts: str, function: object, *args: object) -> None:
    """Call a function with a default group whose ranks keep apart as told."""
    rank, world = dist.get_rank(), dist.get_world_size()
    default = dist.group.WORLD
    os.environ["TORCHYARD_COLLECTIVES_HOST"] = hosts[rank]
    try:
        group = dist.new_group(list(range(world)))
    finally:
        del os.environ["TORCHYARD_COLLECTIVES_HOST"]
    described = group.describe()
    assert len(described["hosts"]) == len(set(hosts))
    dist.distributed_c10d._update_default_pg(group)
    try:
        assert callable(function)
        function(*args)
    finally:
        dist.distributed_c10d._update_default_pg(default)
    dist.destroy_process_group(group)


def _sums() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64):
        for size in (1, 3, 100_001):
            # Small whole numbers have one sum in any order.
            values = [_values(r, size, torch.int32).to(dtype) for r in range(world)]
            for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"):
                tensor = values[rank].clone()
                dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
                stacked = torch.stack(values).double()
                expected = {
                    "SUM": stacked.sum(0),
                    "AVG": stacked.mean(0) if dtype.is_floating_point else stacked.mean(0).trunc(),
                    "MAX": stacked.amax(0),
                    "MIN": stacked.amin(0),
                    "PRODUCT": stacked.prod(0),
                }[name].to(dtype)
                assert torch.equal(tensor, expected), (dtype, size, name)
    tensor = torch.full((8,), rank + 1.0)
    dist.reduce(tensor, 1)
    assert (tensor == (10 if rank == 1 else rank + 1)).all()
    part = torch.empty(5)
    dist.reduce_scatter_tensor(part, torch.arange(5.0 * world))
    assert torch.equal(part, world * (torch.arange(5.0) + 5 * rank))


@pytest.mark.parametrize("hosts", _HOSTS)
def test_reductions_over_hosts_are_right(hosts: str) -> None:
    run_ranks(4, _on_hosts, _HOSTS[hosts], _sums, backend="shm")


def _all_of_it() -> None:
    for size in (1, 11, 70_000):
        _moves(size)
    _strided_over_hosts()
    _ring((1, 131_072))
    _tags()
    _anyone()
    _bools_over_hosts()
    _functional()


def _strided_over_hosts() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    view = torch.zeros(40, 60).t()[::2]
    view.fill_(rank + 1.0)
    dist.all_reduce(view)
    assert (view == world * (world + 1) / 2).all()


def _bools_over_hosts() -> None:
    rank = dist.get_rank()
    tensor = torch.tensor([rank == 3, True, False])
    dist.all_reduce(tensor)
    assert tensor.tolist() == [True, True, False]
    with pytest.raises(TypeError, match=r"of torch\.uint16 is not defined between hosts"):
        dist.all_reduce(torch.ones(2, dtype=torch.uint16))


@pytest.mark.sweep
@pytest.mark.parametrize("hosts", ["2+2", "3+1"])
def test_everything_else_over_hosts_is_right(hosts: str) -> None:
    run_ranks(4, _on_hosts, _HOSTS[hosts], _all_of_it, backend="shm")
    lengths = [[1, 0, 5, 2], [9000, 2, 3, 1], [0, 0, 800, 0], [3, 3, 3, 3]]
    run_ranks(4, _on_hosts, _HOSTS[hosts], _exchanges, lengths, backend="shm")
