"""What ops return: for any shape, split and dtype, on one rank and on several."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import torchyard_collectives as tc
from torchyard_collectives._simulation import simulate

from .ranks import run_ranks

_DTYPES = (
    *(torch.bool, torch.uint8, torch.int16, torch.int64, torch.bfloat16, torch.float16),
    *(torch.float32, torch.complex64, torch.float8_e4m3fn),
)


def _numbers(rank: int, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) * 7 + 3 * rank) % 11).sub(5).reshape(tuple(shape)).to(dtype)


def _every_movement(dtype: torch.dtype) -> list[Any]:
    import torch.distributed as dist

    rank = dist.get_rank()
    x = _numbers(rank, (4, 3), dtype)
    results = [
        tc.all_gather(x, 1, grad="sum"),
        tc.all_to_all(x, grad="sum"),
        tc.broadcast(x, 1, grad="sum"),
        tc.gather(x, 0, grad="sum"),
        tc.scatter(x, 1, grad="sum"),
        tc.shift(x, grad="sum"),
        tc.permute(x, {0: 0}, grad="sum"),
    ]
    assert all(result.dtype == dtype and result.is_contiguous() for result in results)
    # As integers of many bits, since not every dtype can be compared or pickled.
    return [torch.view_as_real(r) if r.is_complex() else r.to(torch.float32) for r in results]


def _expected_movements(rank: int, dtype: torch.dtype) -> list[Tensor]:
    xs = [_numbers(r, (4, 3), dtype) for r in range(2)]
    raw = [torch.view_as_real(x) if dtype.is_complex else x.to(torch.float32) for x in xs]
    half = slice(2 * rank, 2 * rank + 2)
    return [
        torch.cat(raw, 1),
        torch.cat([raw[0][half], raw[1][half]]),
        raw[1],
        torch.cat(raw) if rank == 0 else torch.cat(raw)[:0],
        raw[1][half],
        raw[1 - rank],
        raw[0] if rank == 0 else torch.zeros_like(raw[0]),
    ]


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_any_dtype_is_moved(dtype: torch.dtype) -> None:
    for rank, results in enumerate(run_ranks(2, _every_movement, dtype)):
        for result, expected in zip(results, _expected_movements(rank, dtype), strict=True):
            assert torch.equal(result, expected)


def _reduced(dtype: torch.dtype) -> list[Any]:
    import torch.distributed as dist

    x = _numbers(dist.get_rank(), (4,), dtype)
    return [
        tc.all_reduce(x, grad="sum"),
        tc.reduce(x, 1, grad="sum"),
        tc.reduce_scatter(x, grad="sum"),
    ]


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int64, torch.bfloat16, torch.float32, torch.complex128], ids=str
)
def test_sums_are_of_the_inputs_dtype(dtype: torch.dtype) -> None:
    total = _numbers(0, (4,), dtype) + _numbers(1, (4,), dtype)
    first, second = run_ranks(2, _reduced, dtype)
    for found, expected in zip(first, (total, total * 0, total[:2]), strict=True):
        assert torch.equal(found, expected)
    for found, expected in zip(second, (total, total, total[2:]), strict=True):
        assert torch.equal(found, expected)


def _refusals() -> list[str]:
    found = []
    for dtype, op in ((torch.bool, "sum"), (torch.int16, "sum"), (torch.int64, "avg")):
        try:
            tc.all_reduce(torch.ones(2, dtype=dtype), op, grad="sum")
        except TypeError as error:
            found.append(str(error))
    for call in (
        lambda: tc.all_reduce(torch.ones(2, dtype=torch.complex64), "max", grad="sum"),
        lambda: tc.reduce(torch.ones(2, dtype=torch.complex64), 0, "min", grad="sum"),
        lambda: tc.all_reduce(torch.ones(2, dtype=torch.int64), tc.PremulSum(0.5), grad="sum"),
    ):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return found


def test_dtypes_without_a_reduction_are_refused_with_a_remedy() -> None:
    for found in run_ranks(2, _refusals):
        assert [text.partition(":")[0] for text in found] == [*"xxxxx", "op"]
        assert "convert it" in found[0]
        assert "int16" in found[1]
        assert "avg" in found[2]
        assert "complex" in found[3]
        assert "complex" in found[4]
        assert "makes torch.float32" in found[5]


def _factors() -> list[str]:
    x = torch.ones(2)
    scaled = tc.all_reduce(x, tc.PremulSum(10**30), grad="sum")
    assert torch.equal(scaled, torch.full((2,), 2e30))
    turned = tc.all_reduce(x.to(torch.complex64), tc.PremulSum(1j), grad="sum")
    assert torch.equal(turned, torch.full((2,), 2j))
    found = []
    for factor in (None, True, "x", [2.0], 1j, math.nan, 1 << 2000):
        with pytest.raises((TypeError, ValueError)) as caught:
            tc.all_reduce(x, tc.PremulSum(factor), grad="sum")  # type: ignore[arg-type]
        found.append(str(caught.value))
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        tc.all_reduce(torch.ones(2, dtype=torch.int64), tc.PremulSum(1 << 63), grad="sum")
    return [*found, str(caught.value)]


def test_factors_are_finite_numbers_or_tensors() -> None:
    for found in run_ranks(2, _factors):
        assert len(found) == 8
        assert all("op: expected a" in text and "PremulSum takes" in text for text in found)


def _nothing() -> list[Any]:
    empty = torch.zeros(0, 3, dtype=torch.float64, requires_grad=True)
    scalar = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    none = [
        tc.all_reduce(empty, grad="sum"),
        tc.all_gather(empty, grad="sum"),
        tc.reduce_scatter(empty, grad="sum"),
        tc.all_to_all(empty, grad="sum"),
        tc.broadcast(empty, 0, grad="sum"),
        tc.shift(empty, grad="sum"),
    ]
    torch.stack([y.sum() for y in none]).sum().backward()
    total = tc.all_reduce(scalar, grad="sum")
    total.backward()
    return [[tuple(y.shape) for y in none], empty.grad, total.item(), scalar.grad]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_nothing_and_scalars_are_tensors_too(size: int) -> None:
    for shapes, grad, total, scalar_grad in run_ranks(size, _nothing):
        assert set(shapes) == {(0, 3)}
        assert grad.shape == (0, 3)
        assert total == 2.0 * size
        assert scalar_grad.item() == size


def _layouts() -> bool:
    import torch.distributed as dist

    base = _numbers(dist.get_rank(), (4, 6))
    for x in (base.T, base[::2, 1::2], base[0].expand(4, 6), base.to(torch.complex128).conj().T):
        for y, z in (
            (tc.all_reduce(x, grad="sum"), tc.all_reduce(x.clone(), grad="sum")),
            (tc.all_gather(x, -1, grad="sum"), tc.all_gather(x.contiguous(), -1, grad="sum")),
            (tc.shift(x, grad="sum"), tc.shift(x.contiguous(), grad="sum")),
        ):
            assert torch.equal(y, z)
            assert y.is_contiguous()
    return True


def test_strides_do_not_matter() -> None:
    assert run_ranks(2, _layouts) == [True, True]


def _movement(x: Tensor, plan: tuple[Any, ...]) -> Tensor:
    name, dim, sizes = plan
    if name == "all_gather":
        return tc.all_gather(x, dim, sizes=sizes, grad="sum")
    if name == "gather":
        return tc.gather(x, len(sizes) - 1, dim, sizes=sizes, grad="sum")
    if name == "scatter":
        return tc.scatter(x, 0, dim, sizes=sizes, grad="sum")
    return tc.reduce_scatter(x, dim, sizes=sizes, grad="sum")


def _own(rank: int, plan: tuple[Any, ...], rest: tuple[int, ...]) -> Tensor:
    name, dim, sizes = plan
    rows = sizes[rank] if name in ("all_gather", "gather") else sum(sizes)
    shape = list(rest)
    shape.insert(dim if dim >= 0 else len(rest) + 1 + dim, rows)
    return _numbers(rank, shape)


def _output_and_gradient(plan: tuple[Any, ...], rest: tuple[int, ...], rank: int) -> list[Tensor]:
    x = _own(rank, plan, rest).requires_grad_()
    y = _movement(x, plan)
    (gradient,) = torch.autograd.grad((y * _numbers(rank + 5, y.shape)).sum(), x)
    return [y.detach(), gradient]


def _on_rank(plan: tuple[Any, ...], rest: tuple[int, ...]) -> list[Tensor]:
    import torch.distributed as dist

    return _output_and_gradient(plan, rest, dist.get_rank())


def _dense(plan: tuple[Any, ...], rest: tuple[int, ...], size: int) -> list[list[Tensor]]:
    xs = [_own(rank, plan, rest).requires_grad_() for rank in range(size)]
    ys = simulate(size, lambda rank: _movement(xs[rank], plan))
    loss = torch.stack([(y * _numbers(r + 5, y.shape)).sum() for r, y in enumerate(ys)]).sum()
    gradients = torch.autograd.grad(loss, xs, allow_unused=True, materialize_grads=True)
    return [[y.detach(), gradient] for y, gradient in zip(ys, gradients, strict=True)]


@settings(max_examples=25, derandomize=True)
@given(
    name=st.sampled_from(["all_gather", "gather", "scatter", "reduce_scatter"]),
    sizes=st.integers(2, 3).flatmap(lambda n: st.lists(st.integers(0, 4), min_size=n, max_size=n)),
    rest=st.lists(st.integers(0, 3), max_size=2),
    place=st.integers(0, 2),
    back=st.booleans(),
)
def test_uneven_rows_along_any_dimension_are_those_of_the_dense_program(
    name: str, sizes: list[int], rest: list[int], place: int, back: bool
) -> None:
    dim = min(place, len(rest)) - (len(rest) + 1 if back else 0)
    plan = (name, dim, sizes)
    expected = _dense(plan, tuple(rest), len(sizes))
    for own, right in zip(
        run_ranks(len(sizes), _on_rank, plan, tuple(rest)), expected, strict=True
    ):
        assert torch.equal(own[0], right[0])
        assert torch.equal(own[1], right[1])


def _exchanged(x: Tensor, rows: list[list[int]], rank: int) -> Tensor:
    received = [rows[source][rank] for source in range(len(rows))]
    return tc.all_to_all(x, input_sizes=rows[rank], output_sizes=received, grad="sum")


def _exchange_on_rank(rows: list[list[int]]) -> list[Tensor]:
    import torch.distributed as dist

    rank = dist.get_rank()
    x = _numbers(rank, (sum(rows[rank]), 2)).requires_grad_()
    y = _exchanged(x, rows, rank)
    (gradient,) = torch.autograd.grad((y * _numbers(rank + 5, y.shape)).sum(), x)
    return [y.detach(), gradient]


@settings(max_examples=15, derandomize=True)
@given(
    rows=st.integers(2, 3).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=n, max_size=n
        )
    )
)
def test_any_uneven_exchange_is_that_of_the_dense_program(rows: list[list[int]]) -> None:
    size = len(rows)
    xs = [_numbers(rank, (sum(rows[rank]), 2)).requires_grad_() for rank in range(size)]
    ys = simulate(size, lambda rank: _exchanged(xs[rank], rows, rank))
    loss = torch.stack([(y * _numbers(r + 5, y.shape)).sum() for r, y in enumerate(ys)]).sum()
    gradients = torch.autograd.grad(loss, xs, allow_unused=True, materialize_grads=True)
    for found, y, gradient in zip(
        run_ranks(size, _exchange_on_rank, rows), ys, gradients, strict=True
    ):
        assert torch.equal(found[0], y)
        assert torch.equal(found[1], gradient)


def _dynamic() -> list[int]:
    import torch.distributed as dist

    rank, size, compiled = dist.get_rank(), dist.get_world_size(), []

    def counted(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        compiled.append(1)
        return graph.forward

    @torch.compile(fullgraph=True, dynamic=True, backend=counted)
    def run(x: Tensor, sizes: list[int]) -> Tensor:
        rows = tc.all_gather(x, sizes=sizes, grad="sum")
        own = tc.reduce_scatter(rows * 2, sizes=sizes, grad="sum")
        return torch.cat([own, tc.all_to_all(own, 1, grad="sum")], 1)

    for rows in (3, 5, 8):
        # As many rows for the exchange, whatever each rank gathers.
        x = _numbers(rank, (rows, 4))
        y = run(x, [rows] * size)
        own = 2 * size * x
        assert torch.equal(y, torch.cat([own, tc.all_to_all(own, 1, grad="sum")], 1))
    return compiled


@pytest.mark.sweep
def test_sizes_may_change_without_compiling_again() -> None:
    assert run_ranks(2, _dynamic) == [[1], [1]]


def _trees() -> list[Any]:
    import torch.distributed as dist

    rank = dist.get_rank()
    tree = {
        "a": _numbers(rank, (4, 3)).requires_grad_(),
        "b": (_numbers(rank + 1, (2, 5), torch.float32), [_numbers(rank + 2, (2, 2, 2))]),
    }
    apart = {
        "sum": functools.partial(tc.all_reduce, grad="sum"),
        "gather": functools.partial(tc.all_gather, dim=1, grad="sum"),
        "scatter": functools.partial(tc.reduce_scatter, grad="sum"),
        "broadcast": functools.partial(tc.broadcast, src=1, grad="sum"),
    }
    together = {
        "sum": tc.tree_all_reduce(tree, grad="sum"),
        "gather": tc.tree_all_gather(tree, 1, grad="sum"),
        "scatter": tc.tree_reduce_scatter(tree, grad="sum"),
        "broadcast": tc.tree_broadcast(tree, 1, grad="sum"),
    }
    for name, found in together.items():
        assert torch.equal(found["a"], apart[name](tree["a"]))
        assert torch.equal(found["b"][0], apart[name](tree["b"][0]))
        assert torch.equal(found["b"][1][0], apart[name](tree["b"][1][0]))
    loss = torch.stack([found["a"].sum() for found in together.values()]).sum()
    (gradient,) = torch.autograd.grad(loss, tree["a"])
    return [gradient]


def test_trees_are_reduced_as_their_tensors_are() -> None:
    # Of sum and gather each rank's loss is a term, for every element; scatter's rows count once,
    # and what is broadcast belongs to rank 1.
    first, second = run_ranks(2, _trees)
    assert torch.equal(first[0], torch.full((4, 3), 5.0, dtype=torch.float64))
    assert torch.equal(second[0], torch.full((4, 3), 7.0, dtype=torch.float64))


def _refused_trees() -> list[str]:
    truths = {"a": torch.ones(2), "b": [torch.ones(2, dtype=torch.bool)]}
    calls: tuple[Callable[[], Any], ...] = (
        lambda: tc.tree_all_reduce(truths, grad="sum"),
        lambda: tc.tree_reduce_scatter(truths, grad="sum"),
        lambda: tc.tree_all_reduce({"a": None}, grad="sum"),
    )
    texts = []
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        texts.append(str(caught.value))
    return texts


def test_an_error_in_a_tensor_of_a_tree_names_the_tree() -> None:
    added, scattered, nothing = run_ranks(1, _refused_trees)[0]
    assert added.startswith("tree: tensors of torch.bool: all_reduce adds bfloat16, ")
    assert scattered.startswith("tree: tensors of torch.bool: reduce_scatter adds bfloat16, ")
    assert nothing == "tree: expected tensors as leaves, got NoneType"
