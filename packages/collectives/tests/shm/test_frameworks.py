"""What training libraries ask of a group: DDP's joins, checkpoints, compilers, profilers."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from packages.collectives.tests.ranks import default_store, run_ranks
from torchyard_collectives.shm import RankTimeoutError

_BACKENDS = ("gloo", "shm")


class _Branches(nn.Module):
    """Uses one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor, which: int) -> Tensor:
        return self.layers[which](x)


def _uneven() -> list[Tensor]:
    """Train with more batches on later ranks, and a layer that only some of them use."""
    torch.manual_seed(0)
    rank = dist.get_rank()
    model = DistributedDataParallel(_Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            model(torch.full((2, 4), step + rank + 1.0), step % 2).sum().backward()
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_ddp_joins_uneven_inputs_and_finds_unused_parameters() -> None:
    expected = run_ranks(2, _uneven, backend="gloo")
    for theirs, ours in zip(expected, run_ranks(2, _uneven, backend="shm"), strict=True):
        # Sums of two gradients, whose order does not matter.
        assert all(map(torch.equal, theirs, ours))


def _checkpoints(folder: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    assert dist.group.WORLD is not None
    assert torch.device("cpu") in dist.group.WORLD._device_types
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    reference = nn.Linear(6, 8)
    model = nn.Linear(6, 8)
    fully_shard(model, mesh=mesh)
    whole = reference.state_dict() if rank == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, whole, options=options)
    assert isinstance(model.weight, DTensor)
    assert torch.equal(model.weight.full_tensor(), reference.weight)
    saved = {"model": get_model_state_dict(model), "step": torch.tensor(7)}
    checkpoint.async_save(saved, checkpoint_id=folder).result()
    other = nn.Linear(6, 8)
    fully_shard(other, mesh=mesh)
    loaded = {"model": get_model_state_dict(other), "step": torch.tensor(0)}
    checkpoint.load(loaded, checkpoint_id=folder)
    set_model_state_dict(other, loaded["model"])
    assert isinstance(other.weight, DTensor)
    assert torch.equal(other.weight.full_tensor(), reference.weight)
    assert loaded["step"] == 7


@pytest.mark.parametrize("backend", _BACKENDS)
def test_checkpoints_are_saved_beside_training_and_loaded_from_one_rank(
    backend: str, tmp_path: Path
) -> None:
    run_ranks(2, _checkpoints, str(tmp_path), backend=backend)


def _own_memory() -> None:
    """Let FSDP2 ask the group for memory to communicate in."""
    model = fully_shard(nn.Linear(8, 8), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    assert isinstance(model, FSDPModule)
    model.set_allocate_memory_from_process_group_for_comm(True)
    model(torch.ones(2, 8)).sum().backward()
    group: Any = dist.group.WORLD
    backend = group._get_backend(torch.device("cpu"))
    assert not backend.supports_splitting
    assert not backend.supports_coalescing


def test_a_group_answers_as_its_own_backend() -> None:
    run_ranks(2, _own_memory, backend="shm")


def _objects_and_groups() -> list[Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (10 + 1000 * rank)})
    listed = [rank, "rank"] if rank == 0 else [None, None]
    dist.broadcast_object_list(listed, 0)
    at_root: list[Any] | None = [None] * world if rank == 1 else None
    dist.gather_object((rank,), at_root, 1)
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(world)] if rank == 0 else None, 0)
    if rank == 0:
        dist.send_object_list([rank + 5], 1)
    elif rank == 1:
        received: list[Any] = [None]
        dist.recv_object_list(received, 0)
        mine.append(received[0])
    own, _ = dist.new_subgroups(group_size=2)
    alone, _ = dist.new_subgroups_by_enumeration([[r] for r in range(world)])
    sums = [torch.ones(3) for _ in range(2)]
    dist.all_reduce(sums[0], group=own)
    dist.all_reduce(sums[1], group=alone)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    row = torch.full((2,), float(rank))
    dist.all_reduce(row, group=mesh["a"].get_group())
    return [gathered, listed, at_root, mine, [total.tolist() for total in sums], row.tolist()]


@pytest.mark.sweep
def test_objects_travel_and_groups_are_divided_as_on_gloo() -> None:
    expected = run_ranks(4, _objects_and_groups, backend="gloo")
    assert run_ranks(4, _objects_and_groups, backend="shm") == expected


def _monitored() -> None:
    group: Any = dist.new_group(timeout=timedelta(seconds=60))
    # torch.distributed's own function took groups of gloo alone before 2.15.
    with suppress(ValueError):
        dist.monitored_barrier(group)
    group.monitored_barrier(timedelta(seconds=60))
    if dist.get_rank() == 1:
        default_store().wait(["told"], timedelta(seconds=120))
        return
    try:
        with pytest.raises(RankTimeoutError, match="rank 1") as caught:
            group.monitored_barrier(timedelta(seconds=0.5), wait_all_ranks=True)
        assert caught.value.ranks == (1,)
    finally:
        default_store().add(f"told by {dist.get_rank()}", 1)
        default_store().wait(["told by 0", "told by 2"], timedelta(seconds=120))
        default_store().set("told", "1")


def test_a_monitored_barrier_names_missing_ranks() -> None:
    run_ranks(3, _monitored, backend="shm")


def _compiled() -> list[Any]:
    rank, world = dist.get_rank(), dist.get_world_size()

    def after(call: Any) -> Tensor:
        @torch.compile(backend="eager")
        def function(x: Tensor) -> Tensor:
            y = x * 2
            call(y)
            return y + 1

        torch.compiler.reset()
        return function(torch.full((2,), rank + 1.0))

    def asynchronous(y: Tensor) -> None:
        work = dist.all_reduce(y, async_op=True)
        assert work is not None
        work.wait()

    def exchanges(y: Tensor) -> None:
        if rank == 0:
            dist.isend(y, 1).wait()  # type: ignore[union-attr]
        elif rank == 1:
            dist.irecv(y, 0).wait()  # type: ignore[union-attr]

    calls = [
        lambda y: dist.barrier(),
        lambda y: dist.broadcast(y, 1),
        asynchronous,
        exchanges,
        lambda y: dist.reduce(y, 0),
    ]
    results: list[Any] = [after(call).tolist() for call in calls]
    torch.compiler.reset()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        compiled(torch.arange(16.0).view(4, 4) + rank).square().sum().backward()
    results += [parameter.grad.tolist() for parameter in model.parameters()]  # type: ignore[union-attr]
    if dist.get_backend() == "shm":
        # On other groups these are an internal error of the compiler.
        def collect(x: Tensor) -> Tensor:
            everyones: list[Any] = [None] * world
            dist.all_gather_object(everyones, 3 + rank)
            return x + everyones[1]

        torch.compiler.reset()
        found = torch.compile(collect, backend="eager")(torch.zeros(1))
        assert found.item() == 4
    torch.compiler.reset()
    return results


@pytest.mark.sweep
def test_collectives_in_compiled_functions_do_what_they_do_outside() -> None:
    expected = run_ranks(2, _compiled, backend="gloo")
    assert run_ranks(2, _compiled, backend="shm") == expected


def _recorded(module: str) -> None:
    world = dist.get_world_size()
    profile: Any = {"autograd": torch.autograd.profiler, "profiler": torch.profiler}[module].profile
    tensor, complex_one = torch.ones(3, 5), torch.ones(4, dtype=torch.complex64)
    outs = [torch.empty(2) for _ in range(world)]
    with profile(record_shapes=True) as recorded:
        dist.all_reduce(tensor)
        dist.all_reduce(complex_one, async_op=True).wait()
        dist.all_gather(outs, torch.ones(2))
        dist.barrier()
        if dist.get_rank() == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor)
    events = recorded.events() if module == "profiler" else recorded.function_events
    found = [(event.name, event.input_shapes) for event in events if "shm:" in event.name]
    ends = ("shm:send" if dist.get_rank() == 0 else "shm:recvAnySource", [[3, 5]])
    assert found == [
        ("shm:all_reduce", [[3, 5]]),
        ("shm:all_reduce", [[4, 2]]),
        ("shm:all_gather", [[2]]),
        ("shm:barrier", []),
        ends,
    ]


@pytest.mark.parametrize("module", ["autograd", "profiler"])
def test_a_profiler_sees_collectives_with_their_sizes(module: str) -> None:
    run_ranks(2, _recorded, module, backend="shm")
