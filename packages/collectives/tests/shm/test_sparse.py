"""all_reduce of sparse tensors, and what becomes of them elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from packages.collectives.tests.ranks import run_ranks


def _dense(rank: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    kept = torch.rand(shape, generator=generator) < 0.3
    return (torch.randint(-9, 9, shape, generator=generator) * kept).to(dtype)


_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64)


def _sums() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    group: Any = dist.group.WORLD
    for dtype in _DTYPES:
        for shape, sparse_dims in (((5, 7), 2), ((6, 4, 3), 1), ((40,), 1), ((0, 3), 2)):
            everyones = [_dense(r, dtype, shape) for r in range(world)]
            tensor = everyones[rank].to_sparse(sparse_dims)
            group.allreduce([tensor]).wait()
            assert tensor.is_coalesced()
            # Small whole numbers: every sum is exact.
            assert torch.equal(tensor.to_dense(), sum(everyones, torch.zeros(shape, dtype=dtype)))
    # Of no elements on one rank, with repeated indices on another, and started beside other work.
    places = torch.tensor([[1, 1, 3]]) if rank else torch.empty(1, 0, dtype=torch.int64)
    tensor = torch.sparse_coo_tensor(places, torch.ones(places.shape[1]), (5,))
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    work.wait()
    assert tensor.to_dense().tolist() == [0.0, 2.0 * (world - 1), 0.0, world - 1.0, 0.0]


@pytest.mark.parametrize("world", [1, 3])
def test_sparse_tensors_are_summed(world: int) -> None:
    run_ranks(world, _sums, backend="shm")


def _averages() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.eye(3).mul(rank + 1).to_sparse()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.equal(tensor.to_dense(), torch.eye(3) * (world + 1) / 2)
    whole = torch.eye(3, dtype=torch.int32).mul(-3 * rank).to_sparse()
    dist.all_reduce(whole, dist.ReduceOp.AVG)
    total = -3 * world * (world - 1) // 2
    expected = -(-total // world)
    assert torch.equal(whole.to_dense(), torch.eye(3, dtype=torch.int32) * expected)
    scaled = torch.eye(3).to_sparse()
    dist.all_reduce(scaled, torch.distributed._make_nccl_premul_sum(0.5))
    assert torch.equal(scaled.to_dense(), torch.eye(3) * world / 2)
    tensors = [torch.eye(2).to_sparse(), torch.eye(2)]
    group: Any = dist.group.WORLD
    group.allreduce_coalesced(tensors).wait()
    assert all(torch.equal(each.to_dense(), torch.eye(2) * world) for each in tensors)


def _embedding() -> list[Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.EmbeddingBag(10, 3, mode="sum", sparse=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.tensor([[step, 2 + dist.get_rank()]])).square().sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_averages_and_gradients_of_embeddings() -> None:
    run_ranks(3, _averages, backend="shm")
    expected = run_ranks(2, _embedding, backend="gloo")
    for theirs, ours in zip(expected, run_ranks(2, _embedding, backend="shm"), strict=True):
        assert all(map(torch.equal, theirs, ours))


def _refused() -> None:
    rank = dist.get_rank()
    group: Any = dist.group.WORLD
    sparse, dense = torch.eye(2).to_sparse(), torch.eye(2)
    with pytest.raises(TypeError, match=r"a sum or an average of sparse tensors.*to_dense"):
        dist.all_reduce(sparse, dist.ReduceOp.MAX)
    with pytest.raises(TypeError, match=r"sparse COO tensor, got torch.sparse_csr"):
        dist.all_reduce(torch.eye(2).to_sparse_csr())
    # torch.distributed takes complex numbers apart before, and would not see the result.
    with pytest.raises(TypeError, match=r"no view; of complex numbers, call group.allreduce"):
        dist.all_reduce(torch.eye(2, dtype=torch.complex64).to_sparse())
    for call in (
        lambda: dist.broadcast(sparse, 0),
        lambda: dist.reduce(sparse, 0),
        lambda: dist.all_gather([dense, dense], sparse),
        lambda: dist.gather(sparse, [dense, dense] if rank == 0 else None),
        lambda: group.alltoall([sparse, sparse], [dense, dense]).wait(),
    ):
        with pytest.raises(TypeError, match=r"shm: expected dense tensors.*to_dense"):
            call()
    with pytest.raises(ValueError, match=r"one shape on all ranks.*\(2, 2\), \(3, 3\)"):
        dist.all_reduce(torch.eye(2 + rank).to_sparse())
    with pytest.raises(ValueError, match=r"as many dimensions on all ranks"):
        dist.all_reduce(torch.ones(2, 2).to_sparse(1 + rank))
    # Nothing of this broke the group.
    dist.all_reduce(dense)
    assert torch.equal(dense, 2 * torch.eye(2))


def test_undefined_operations_on_sparse_tensors_raise_on_all_ranks() -> None:
    run_ranks(2, _refused, backend="shm")
