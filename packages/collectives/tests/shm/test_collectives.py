"""Every collective, on shm and on gloo, against what one process computes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.collectives.tests.ranks import run_ranks

_BACKENDS = ("gloo", "shm")
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
_MORE_INTEGERS = (torch.int16, torch.uint16, torch.uint32, torch.uint64)
# Around what is sent in one line, in one piece, and in several rounds.
_SIZES = (0, 1, 10, 11, 1000, 16384, 16385, 70_000, 262_144, 300_001, 1_100_000)


def _values(rank: int, size: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1 + rank)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)
    return torch.randint(0, 7, (size,), generator=generator).to(dtype)


def _digest(*tensors: Tensor) -> str:
    return hashlib.sha256(
        b"".join(
            t.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors
        )
    ).hexdigest()


def _one_digest(digests: list[str]) -> bool:
    return len(set(digests)) == 1


def _everyones(size: int, dtype: torch.dtype) -> list[Tensor]:
    return [_values(rank, size, dtype) for rank in range(dist.get_world_size())]


def _reduced(op: Any, values: list[Tensor]) -> Tensor:
    """Return the reduction in the order of ranks; halves in float32, rounded once."""
    steps: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.AVG: torch.add,
        dist.ReduceOp.PRODUCT: torch.mul,
        dist.ReduceOp.MIN: torch.minimum,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }
    dtype = values[0].dtype
    # torch has no arithmetic on the wider unsigned integers; the values are small.
    wide = {torch.float16: torch.float32, torch.bfloat16: torch.float32}.get(dtype, dtype)
    if dtype in _MORE_INTEGERS:
        wide = torch.int64
    result = values[0].to(wide)
    for value in values[1:]:
        result = steps[op](result, value.to(wide))
    if op == dist.ReduceOp.AVG:
        count = torch.tensor(len(values), dtype=wide)
        rounding = None if wide.is_floating_point else "trunc"
        result = torch.div(result, count, rounding_mode=rounding)
    return result.to(dtype)


def _reduces(name: str, dtype: torch.dtype, sizes: tuple[int, ...]) -> str:
    op, rank, world = getattr(dist.ReduceOp, name), dist.get_rank(), dist.get_world_size()
    results = []
    for size in sizes:
        expected = _reduced(op, _everyones(size, dtype))
        tensor = _values(rank, size, dtype)
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8)), (size, world)
        results.append(tensor)
        if world < 2:
            continue
        tensor = _values(rank, size, dtype)
        dist.reduce(tensor, world - 1, op)
        kept = expected if rank == world - 1 else _values(rank, size, dtype)
        assert torch.equal(tensor.view(torch.uint8), kept.view(torch.uint8)), size
        if size % world == 0 and size:
            part = torch.empty(size // world, dtype=dtype)
            dist.reduce_scatter_tensor(part, _values(rank, size, dtype), op)
            own = expected.view(world, -1)[rank]
            assert torch.equal(part.view(torch.uint8), own.view(torch.uint8)), size
    return _digest(*results)


@pytest.mark.sweep
@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_sums_have_the_bits_of_sums_in_the_order_of_ranks(dtype: torch.dtype, world: int) -> None:
    assert _one_digest(run_ranks(world, _reduces, "SUM", dtype, _SIZES, backend="shm"))


@pytest.mark.parametrize("dtype", [*_FLOATS, *_INTEGERS, *_MORE_INTEGERS], ids=str)
def test_every_operation_is_right_in_every_dtype(dtype: torch.dtype) -> None:
    names = ["SUM", "AVG", "PRODUCT", "MIN", "MAX"]
    if not dtype.is_floating_point:
        names += ["BAND", "BOR", "BXOR"]
    for name in names:
        sizes = (1, 7, 3000, 40_000)
        assert _one_digest(run_ranks(3, _reduces, name, dtype, sizes, backend="shm"))


def _bools() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    everyones = [torch.arange(100) % (r + 2) == 0 for r in range(world)]
    for name, combine in {"SUM": any, "MAX": any, "BOR": any, "MIN": all, "PRODUCT": all}.items():
        tensor = everyones[rank].clone()
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
        expected = [combine(bool(each[i]) for each in everyones) for i in range(100)]
        assert tensor.tolist() == expected, name
    for name in ("AVG",):
        with pytest.raises(
            TypeError, match=r"all_reduce: operation 1 of torch.bool is not defined"
        ):
            dist.all_reduce(torch.ones(3, dtype=torch.bool), getattr(dist.ReduceOp, name))


def test_booleans_are_combined_as_truth_values() -> None:
    run_ranks(3, _bools, backend="shm")


def _special() -> None:
    rank = dist.get_rank()
    for dtype in _FLOATS:
        for name in ("MIN", "MAX", "SUM"):
            for place in range(2):
                tensor = torch.tensor([1.0 + rank, 2.0], dtype=dtype)
                if rank == place:
                    tensor[0] = torch.nan
                dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
                assert tensor[0].isnan(), (dtype, name, place)
    complex_one = torch.full((1000,), complex(rank, 1))
    dist.all_reduce(complex_one)
    assert torch.equal(complex_one, torch.full((1000,), complex(1, 2)))
    premul = torch.distributed._make_nccl_premul_sum(0.5)
    tensor = torch.full((5,), float(rank + 1))
    dist.all_reduce(tensor, premul)
    assert torch.equal(tensor, torch.full((5,), 1.5))
    wrapped = torch.tensor([127], dtype=torch.int8)
    dist.all_reduce(wrapped)
    assert wrapped.item() == -2


def test_nan_complex_premul_and_overflow() -> None:
    run_ranks(2, _special, backend="shm")


def _moves(size: int) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    everyones = _everyones(size, torch.float32)
    mine = everyones[rank]
    single = torch.empty(world * size)
    dist.all_gather_into_tensor(single, mine)
    assert torch.equal(single, torch.cat(everyones))
    listed = [torch.empty(size) for _ in range(world)]
    dist.all_gather(listed, mine)
    assert all(map(torch.equal, listed, everyones))
    for root in range(world):
        tensor = mine.clone()
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, everyones[root])
        gathered = [torch.empty(size) for _ in range(world)] if rank == root else None
        dist.gather(mine, gathered, dst=root)
        if gathered is not None:
            assert all(map(torch.equal, gathered, everyones))
        scattered = torch.empty(size)
        pieces = [value + root for value in everyones] if rank == root else None
        dist.scatter(scattered, pieces, src=root)
        assert torch.equal(scattered, mine + root)


@pytest.mark.parametrize("backend", _BACKENDS)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_data_arrive_where_they_should(world: int, backend: str) -> None:
    for size in (1, 10, 11, 5000, 65_536, 65_537, 400_001):
        run_ranks(world, _moves, size, backend=backend)


def _any_dtype() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float8_e4m3fn, torch.complex64, torch.bool, torch.uint16):
        mine = torch.full((100,), rank + 1).to(dtype)
        dist.broadcast(mine, 1)
        assert mine.view(torch.uint8).equal(torch.full((100,), 2).to(dtype).view(torch.uint8))
    if world > 1:
        with pytest.raises(TypeError, match=r"operation 0 of torch.float8_e4m3fn is not defined"):
            dist.all_reduce(torch.ones(4).to(torch.float8_e4m3fn))


def test_data_of_any_dtype_are_moved() -> None:
    run_ranks(2, _any_dtype, backend="shm")


def _exchanges(lengths: list[list[int]]) -> None:
    """Exchange ``lengths[r][s]`` rows from rank r to rank s."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def piece(source: int, target: int) -> Tensor:
        count = lengths[source][target]
        return torch.arange(count * 3).view(count, 3) + 1000 * source + 100 * target

    outgoing = [piece(rank, target) for target in range(world)]
    expected = [piece(source, rank) for source in range(world)]
    single = torch.empty(sum(map(len, expected)), 3, dtype=torch.int64)
    sizes = [list(map(len, expected)), list(map(len, outgoing))]
    dist.all_to_all_single(single, torch.cat(outgoing), *sizes)
    assert torch.equal(single, torch.cat(expected))
    if dist.get_backend() == "shm":
        listed = [torch.empty_like(each) for each in expected]
        dist.all_to_all(listed, outgoing)
        assert all(map(torch.equal, listed, expected))
        counts = [sum(row) for row in lengths]
        outs = [torch.empty(count) for count in counts]
        dist.all_gather(outs, torch.full((counts[rank],), float(rank)))
        assert all(torch.equal(out, torch.full_like(out, r)) for r, out in enumerate(outs))
        sources = [torch.full((count,), rank + 1.0) for count in counts]
        part = torch.empty(counts[rank])
        dist.reduce_scatter(part, sources)
        assert torch.equal(part, torch.full_like(part, world * (world + 1) / 2))


@pytest.mark.parametrize("backend", _BACKENDS)
def test_uneven_pieces_are_exchanged(backend: str) -> None:
    run_ranks(3, _exchanges, [[1, 0, 5], [40_000, 2, 3], [0, 0, 30_000]], backend=backend)
    run_ranks(2, _exchanges, [[0, 0], [0, 7]], backend=backend)


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 9000), min_size=3, max_size=3), min_size=3, max_size=3))
def test_any_lengths_are_exchanged(lengths: list[list[int]]) -> None:
    run_ranks(3, _exchanges, lengths, backend="shm")


def _strided() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    base = torch.zeros(40, 60)
    view = base.t()[::2]
    view.copy_(torch.full(view.shape, float(rank + 1)))
    dist.all_reduce(view)
    assert (view == world * (world + 1) / 2).all()
    assert (base.t()[1::2] == 0).all()
    out = torch.zeros(3, 2 * world).t()
    dist.all_gather_into_tensor(out, torch.full((3, 2), float(rank)).t().contiguous().view(2, 3))
    assert torch.equal(out[:, 0], torch.arange(world).repeat_interleave(2).float())
    target = torch.zeros(8, 8).t()
    dist.broadcast(target if rank else target.fill_(5), 0)
    assert (target == 5).all()


def test_tensors_need_not_be_contiguous() -> None:
    run_ranks(2, _strided, backend="shm")


def _coalesced() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    total = world * (world + 1) / 2
    tensors = [torch.full((n,), rank + 1.0) for n in (3, 50_000, 1)]
    group = dist.group.WORLD
    assert group is not None
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    assert all((tensor == total).all() for tensor in tensors)
    outs = [torch.empty(world * n) for n in (2, 3000)]
    group.allgather_into_tensor_coalesced(
        outs, [torch.full((n,), float(rank)) for n in (2, 3000)]
    ).wait()
    assert torch.equal(outs[0], torch.arange(world).repeat_interleave(2).float())
    parts = [torch.empty(n) for n in (2, 3000)]
    sources = [torch.full((world * n,), rank + 1.0) for n in (2, 3000)]
    group.reduce_scatter_tensor_coalesced(parts, sources).wait()
    assert all((part == total).all() for part in parts)
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == total * world).all() for tensor in tensors)


def test_many_tensors_go_at_once() -> None:
    run_ranks(2, _coalesced, backend="shm")
