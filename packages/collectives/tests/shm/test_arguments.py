"""Tensors that a group cannot take: without memory of their own, of several dtypes, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

from packages.collectives.tests.ranks import run_ranks

_COUNT = 30_000


def _freed() -> Tensor:
    tensor = torch.ones(_COUNT)
    tensor.untyped_storage().resize_(0)
    return tensor


def _cut() -> Tensor:
    """Return a view that begins inside of its storage, and ends outside."""
    tensor = torch.ones(_COUNT)[10:]
    tensor.untyped_storage().resize_(80)
    return tensor


def _strided_and_cut() -> Tensor:
    tensor = torch.ones(200, 300).t()
    tensor.untyped_storage().resize_(1000)
    return tensor


def _spread() -> Tensor:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return DTensor.from_local(torch.ones(_COUNT), mesh, [Replicate()])


def _meta() -> Tensor:
    return torch.ones(_COUNT, device="meta")


def _memory() -> None:
    group: Any = dist.group.WORLD
    rank = dist.get_rank()
    cases: tuple[tuple[Callable[[], Tensor], type[Exception], str], ...] = (
        (_freed, ValueError, r"storage holds 0 bytes; it was freed, as FSDP"),
        (_cut, ValueError, r"storage holds 80 bytes"),
        (_strided_and_cut, ValueError, r"storage holds 1000 bytes"),
        (_spread, TypeError, r"got DTensor on cpu; give what it holds, as to_local\(\)"),
        (_meta, TypeError, r"got Tensor on meta"),
    )
    for make, error, match in cases:
        tensor = make()
        calls: list[Callable[[], Any]] = [
            lambda tensor=tensor: group.allreduce_coalesced([tensor]).wait(),
            lambda tensor=tensor: group.broadcast([tensor]).wait(),
            lambda tensor=tensor: group.allgather(
                [[torch.empty(tensor.shape) for _ in range(2)]], [tensor]
            ).wait(),
            lambda tensor=tensor: group.alltoall([torch.empty(2)] * 2, [tensor, tensor]).wait(),
            lambda tensor=tensor: group.send([tensor], 1 - rank, 0),
        ]
        # A first tensor on another device is another group's; the error says that there is none.
        if tensor.is_cpu:
            for call in calls:
                with pytest.raises(error, match=match):
                    call()
        else:
            with pytest.raises(error, match=match):
                group.alltoall([tensor] * 2, [torch.empty(_COUNT)] * 2).wait()
    dist.barrier()


def test_tensors_without_memory_are_refused_and_nothing_crashes() -> None:
    run_ranks(2, _memory, backend="shm")


def _under_way() -> None:
    """Give a group the result of a functional collective that nobody has waited for."""
    group = dist.group.WORLD
    assert group is not None
    waiting = functional.all_reduce(torch.ones(_COUNT), "sum", group)
    dist.all_reduce(waiting)
    assert torch.equal(waiting + 0, torch.full((_COUNT,), 4.0))
    everyones = [torch.empty(3) for _ in range(2)]
    dist.all_gather(everyones, functional.all_reduce(torch.ones(3), "sum", group))
    assert all(torch.equal(each, torch.full((3,), 2.0)) for each in everyones)


def test_what_a_functional_collective_returned_is_waited_for() -> None:
    run_ranks(2, _under_way, backend="shm")


def _dtypes() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    group: Any = dist.group.WORLD

    def floats(*shape: int) -> Tensor:
        return torch.ones(shape)

    def integers(*shape: int) -> Tensor:
        return torch.ones(shape, dtype=torch.int32)

    calls: dict[str, Callable[[], Any]] = {
        "all_gather": lambda: group.allgather([[integers(2)] * world], [floats(2)]),
        "all_gather ": lambda: dist.all_gather_into_tensor(integers(2 * world), floats(2)),
        "reduce_scatter": lambda: group.reduce_scatter([integers(2)], [[floats(2)] * world]),
        "reduce_scatter ": lambda: dist.reduce_scatter_tensor(integers(2), floats(2 * world)),
        "all_to_all": lambda: group.alltoall([integers(2)] * world, [floats(2)] * world),
        "all_to_all ": lambda: group.all_to_all_single(integers(world), floats(world), [], []),
        "scatter": lambda: group.scatter(integers(2), [floats(2)] * world, rank),
        "gather": lambda: group.gather([integers(2)] * world, floats(2), rank),
    }
    for name, call in calls.items():
        with pytest.raises(
            TypeError, match=rf"{name.strip()}: .*one dtype, got torch.float32 and torch.int32"
        ):
            call()
    for root in (-1, world):
        for name in ("broadcast", "reduce"):
            with pytest.raises(ValueError, match=rf"root: expected a rank .* 0 to 1, got {root}"):
                getattr(group, name)(floats(2), root)
    for name in ("allreduce", "allreduce_coalesced", "broadcast", "reduce"):
        with pytest.raises(ValueError, match="expected at least one tensor, got an empty list"):
            getattr(group, name)([])
    dist.barrier()


def test_wrong_dtypes_roots_and_empty_lists_are_named() -> None:
    run_ranks(2, _dtypes, backend="shm")
