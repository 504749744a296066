"""foreach_map means what its function means on the tensors of each group."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchyard
from torchyard import UnsupportedError
from torchyard.dispatch import decision_cache
from torchyard_kernels import foreach_map, foreach_map_
from torchyard_kernels.pointwise import _ops, _recordings
from torchyard_kernels.pointwise.contract import DEFINITIONS, POINTWISE
from torchyard_programs import ProgramError

IMPLEMENTATIONS = ("cpu.native", "kernels.map", "kernels.map_reference", None)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
implementations = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=str)


def exact(function: Callable[..., Any], *items: Any) -> Any:
    """Return what the function gives in float64."""
    return function(*(x.double() if isinstance(x, torch.Tensor) else x for x in items))


def assert_rounded(result: torch.Tensor, expected: torch.Tensor, steps: int = 8) -> None:
    """Assert that a result is a float32 computation of some steps, rounded to its dtype."""
    eps = torch.finfo(torch.float32).eps * steps
    if result.dtype != torch.float32:
        eps += torch.finfo(result.dtype).eps
    torch.testing.assert_close(result.double(), expected, rtol=eps, atol=eps)


@implementations
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_groups_are_computed_in_float32_and_rounded_once(
    dtype: torch.dtype, implementation: str | None
) -> None:
    torch.manual_seed(0)
    shapes = [(3, 4), (1037,), (), (0,), (2, 3, 5)]
    xs = [torch.randn(shape).to(dtype) for shape in shapes]
    ys = [torch.randn(shape).to(dtype) for shape in shapes]

    def function(x: Any, y: Any, a: Any) -> Any:
        return torch.tanh(x) * y - torch.exp(x * a) / (y * y + 1)

    found = foreach_map(function, xs, ys, 0.5, implementation=implementation)

    assert [tensor.dtype for tensor in found] == [dtype] * len(shapes)
    for tensor, x, y in zip(found, xs, ys, strict=True):
        assert tensor.shape == x.shape
        assert tensor.is_contiguous()
        assert_rounded(tensor, exact(function, x, y, 0.5))


@implementations
def test_half_precision_loses_nothing_between_steps(implementation: str | None) -> None:
    xs = [torch.full((64,), 256.0, dtype=torch.bfloat16)]
    found = foreach_map(lambda x: (x + 1) - 256, xs, implementation=implementation)
    assert torch.equal(found[0], torch.ones(64, dtype=torch.bfloat16))
    # A conversion in the function rounds: 257 is no bfloat16.
    found = foreach_map(lambda x: (x + 1).bfloat16() - 256, xs, implementation=implementation)
    assert torch.equal(found[0], torch.zeros(64, dtype=torch.bfloat16))


@implementations
@settings(max_examples=25)
@given(data=st.data())
def test_tensors_broadcast_and_promote_as_torchs(implementation: str | None, data: Any) -> None:
    dtypes = st.sampled_from([*FLOATS, torch.int64, torch.int32, torch.bool])
    shape = data.draw(st.lists(st.integers(1, 5), min_size=0, max_size=4))

    def operand(name: str) -> torch.Tensor:
        cut = data.draw(st.integers(0, len(shape)), label=f"{name} dims")
        own = [1 if data.draw(st.booleans()) else size for size in shape[cut:]]
        tensor = torch.randint(-3, 4, own).to(data.draw(dtypes, label=name))
        if tensor.dim() > 1 and data.draw(st.booleans()):
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        return tensor

    x, y, z = operand("x"), operand("y"), operand("z")

    def function(x: Any, y: Any, z: Any) -> Any:
        return torch.where(x > y, x * 2 + y, y), z == 1

    # The dtypes of a chain of torch's own operations.
    expected = function(x, y, z)
    found = foreach_map(function, [x], [y], z, implementation=implementation)

    for (result,), wanted in zip(found, expected, strict=True):
        shape_of = torch.broadcast_shapes(x.shape, y.shape, z.shape)
        assert (result.dtype, result.shape) == (wanted.dtype, shape_of)
        assert torch.equal(result, wanted.expand(shape_of))


@implementations
def test_lists_of_numbers_scalars_and_captured_tensors_mix(implementation: str | None) -> None:
    xs = [torch.arange(4.0), torch.arange(6.0).view(2, 3)]
    bias, steps = torch.tensor(2.0), [torch.tensor(1.0), torch.tensor(4.0)]

    found = foreach_map(
        lambda x, rate, step, flag: (
            torch.where(torch.tensor(True) & flag, x * rate / step, x) + bias
        ),
        *(xs, [0.5, 3], steps, True),
        implementation=implementation,
    )

    assert torch.equal(found[0], xs[0] * 0.5 + 2)
    assert torch.equal(found[1], xs[1] * 3 / 4 + 2)


@implementations
def test_captured_rows_broadcast_with_every_group(implementation: str | None) -> None:
    xs = [torch.zeros(2, 3), torch.ones(3), torch.ones(4, 1)]
    row = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    found = foreach_map(lambda x: x * 2 + row, xs, implementation=implementation)

    for tensor, x in zip(found, xs, strict=True):
        assert torch.equal(tensor, x * 2 + row)
    sum(tensor.sum() for tensor in found).backward()
    assert torch.equal(row.grad, torch.full((3,), 7.0))


@implementations
def test_numbers_are_computed_on_the_host(implementation: str | None) -> None:
    # In float32 1 - 0.999 ** 1 would be off by 5e-5.
    xs = [torch.ones(3), torch.ones(2)]
    found = foreach_map(
        lambda x, beta, step: x / (1 - beta**step), xs, 0.999, [1, 3], implementation=implementation
    )
    for tensor, step in zip(found, (1, 3), strict=True):
        torch.testing.assert_close(
            tensor.double(),
            torch.full_like(tensor, 1 / (1 - 0.999**step)).double(),
            rtol=1e-7,
            atol=0,
        )


@implementations
def test_several_results_come_as_a_tuple_of_lists(implementation: str | None) -> None:
    xs = [torch.randn(5), torch.randn(2, 2)]
    total, untouched, number = foreach_map(
        lambda x: (x + x, x, 2.0), xs, implementation=implementation
    )
    for group, x in enumerate(xs):
        assert torch.equal(total[group], x + x)
        assert torch.equal(untouched[group], x)
        assert untouched[group].data_ptr() != x.data_ptr()
        assert torch.equal(number[group], torch.full_like(x, 2.0))


@implementations
def test_nan_and_infinity_come_out_as_torchs(implementation: str | None) -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e38, -1e-40, 3.0])
    x, y = special.repeat_interleave(8), special.repeat(8)

    def function(x: Any, y: Any) -> tuple[Any, ...]:
        return torch.maximum(x, y), x / y, torch.sqrt(x), torch.sign(x), torch.clamp(x, min=y)

    found = foreach_map(function, [x], [y], implementation=implementation)
    for (result,), expected in zip(found, function(x, y), strict=True):
        torch.testing.assert_close(result, expected, equal_nan=True)


@implementations
def test_in_place_writes_the_first_lists_and_reads_what_was_there(
    implementation: str | None,
) -> None:
    xs, ys = [torch.randn(700), torch.randn(3, 5)], [torch.randn(700), torch.randn(3, 5)]
    before = [t.clone() for t in xs], [t.clone() for t in ys]
    addresses = [t.data_ptr() for t in (*xs, *ys)]

    foreach_map_(lambda x, y: (y, x), xs, ys, implementation=implementation)

    assert all(
        torch.equal(t, old) for t, old in zip((*xs, *ys), (*before[1], *before[0]), strict=True)
    )
    assert addresses == [t.data_ptr() for t in (*xs, *ys)]


@implementations
def test_out_takes_any_layout_and_converts(implementation: str | None) -> None:
    x, y = torch.randn(6, 8), torch.randn(8)
    out = torch.zeros(8, 12, dtype=torch.bfloat16).t()[::2]
    assert out.shape == (6, 8)
    foreach_map_(lambda x, y: x + y, [x], [y], out=[[out]], implementation=implementation)
    assert torch.equal(out, (x + y).bfloat16())


@implementations
def test_groups_of_different_dtypes_are_each_computed_in_their_own(
    implementation: str | None,
) -> None:
    xs = [torch.ones(3, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.int64)]
    found = foreach_map(lambda x: x * 2, xs, implementation=implementation)
    assert [tensor.dtype for tensor in found] == [x.dtype for x in xs]
    assert all(torch.equal(tensor, x * 2) for tensor, x in zip(found, xs, strict=True))


def test_float64_is_computed_in_float64_and_the_native_kernel_says_why_not() -> None:
    x = torch.randn(5, dtype=torch.float64)
    assert torch.equal(foreach_map(lambda x: x / 3, [x])[0], x / 3)
    with pytest.raises(UnsupportedError, match="reads a tensor of float64"):
        foreach_map(lambda x: x / 3, [x], implementation="cpu.native")


def test_functions_of_one_structure_share_what_was_prepared() -> None:
    from torchyard_cpu._programs.program import native_program

    foreach_map(lambda x: x * 3.5 + 1, [torch.ones(2)])
    before = native_program.cache_info().currsize
    for _ in range(5):
        assert foreach_map(lambda y: y * 3.5 + 1, [torch.ones(4)])[0][0] == 4.5
    assert native_program.cache_info().currsize == before


def test_a_function_that_may_have_changed_is_recorded_again() -> None:
    xs = [torch.ones(3)]
    held = {"factor": 2.0}

    def scaled(x: Any) -> Any:
        return x * held["factor"]

    def counted(factor: Any) -> Callable[..., Any]:
        return lambda x: x * factor

    assert foreach_map(scaled, xs)[0][0] == 2
    held["factor"] = 3.0
    assert foreach_map(scaled, xs)[0][0] == 3
    # One code with other numbers, and a number of another type.
    found = [foreach_map(counted(factor), [torch.tensor([3])])[0] for factor in (2, 2.0, True, 5)]
    assert [tensor.tolist() for tensor in found] == [[6], [6.0], [3], [15]]
    assert [tensor.dtype for tensor in found[:2]] == [torch.int64, torch.float32]
    for value in (torch.tensor(2.0), torch.tensor(4.0)):
        assert foreach_map(counted(value), xs)[0][0] == value


def test_a_function_that_cannot_have_changed_is_recorded_once() -> None:
    calls = []

    def double(x: Any) -> Any:
        return torch.relu(x) * 2

    original = _recordings.trace
    try:
        _recordings.trace = lambda *given, **named: calls.append(1) or original(*given, **named)
        for _ in range(3):
            assert foreach_map(double, [torch.ones(2)])[0][0] == 2
    finally:
        _recordings.trace = original
    assert calls == [1]


@implementations
def test_what_a_backward_saved_is_known_to_be_written_to(implementation: str | None) -> None:
    for _ in range(3):
        weight, factor = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
        loss = (weight * factor * factor).sum()
        before = factor._version
        foreach_map_(lambda x: x + 1, [factor], implementation=implementation)
        assert factor._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_captured_tensors_are_read_as_they_are() -> None:
    phases = torch.complex(torch.zeros(3), torch.arange(3.0)).conj().imag
    assert phases.is_neg()
    zeros = torch._efficientzerotensor((3,), dtype=torch.float32)
    for _ in range(3):
        (found,) = foreach_map(lambda x: x + phases, [torch.ones(3)])
        assert found.tolist() == [1.0, 0.0, -1.0]
        (found,) = foreach_map(lambda x: x + zeros, [torch.ones(3)])
        assert found.tolist() == [1.0, 1.0, 1.0]


def test_tensors_of_a_group_lie_on_one_device() -> None:
    here, there = torch.ones(3), torch.ones(3, device="meta")
    for function in (lambda x: x + there, lambda x: x + there.sum()):
        with pytest.raises(ProgramError, match="expected captured tensors on cpu"):
            foreach_map(function, [here])
    several = "tensors of a group on one device, got cpu and meta"
    for _ in range(2):
        with pytest.raises(TypeError, match=several):
            foreach_map(lambda x, y: x + y, [here], [there])
        with pytest.raises(TypeError, match=several):
            foreach_map_(lambda x: x + 1, [here], out=[[there]])


def test_no_groups_give_no_tensors() -> None:
    assert foreach_map(lambda x: x, []) == []
    assert foreach_map(lambda x: (x, x), []) == ([], [])
    foreach_map_(lambda x: x, [])


def test_requests_are_read_from_text() -> None:
    definition = DEFINITIONS[POINTWISE]
    request = definition.request(
        {"inputs": "bfloat16:1,float:-1", "out": "bfloat16", "groups": "20"}
    )
    assert (request.inputs, request.groups) == ((("bfloat16", 1), ("float", -1)), 32)
    assert request.bucket() == "cpu bfloat16 float() x32 in place"
    assert all(request.bucket() for request in definition.cases("cpu"))
    with pytest.raises(ValueError, match=r"inputs: expected dtype:dimensions .* got 'float32:7'"):
        definition.request({"inputs": "float32:7"})
    with pytest.raises(ValueError, match="pointwise/1 has no field nothing"):
        definition.request({"nothing": "1"})


def test_of_several_dtypes_the_last_one_used_is_tried_first() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x + 3

    with torchyard.use(pointwise="cpu.native"):
        decision_cache().clear()
        for dtype in (torch.float32, torch.bfloat16, torch.float32, torch.bfloat16):
            for _ in range(2):
                (found,) = foreach_map(twice, [torch.ones(3, dtype=dtype)])
            assert torch.equal(found, torch.full((3,), 5, dtype=dtype))
            (calls,) = decision_cache()[_ops.FAST_PATH._paths_key].calls.values()
            given = ([torch.ones(3, dtype=dtype)],), (), None
            assert calls[0](*given) is not None
            assert calls[1:] == () or calls[1](*given) is None
        assert len(calls) == 2
