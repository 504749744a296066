"""Repeated calls with functions take the fast path with the same bits, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import gelu, silu
from torch.utils.flop_counter import FlopCounterMode

import torchyard
from torchyard.dispatch import decision_cache
from torchyard_kernels import PackedWeight, linear
from torchyard_kernels.linear import _api, _ops
from torchyard_kernels.linear._functions import recordings
from torchyard_kernels.linear.contract import PLAIN_WEIGHT, LinearCall

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.fixture
def counted(monkeypatch):
    """Count the calls with functions that no path takes, under settings of their own."""
    calls = []
    compute = _ops.compute

    def counting(call):
        if call.prologue is not None or call.epilogue is not None:
            calls.append(call)
        return compute(call)

    monkeypatch.setattr(_api, "compute", counting)
    with torchyard.use(linear="cpu.native"):
        decision_cache().clear()
        yield calls


def by_op(x, held, bias, *, prologue=None, epilogue=None, gated=False):
    """Return what the op gives, as a call that was never decided does."""
    before = None if prologue is None else recordings.record(prologue, "prologue", False, x)
    after = None if epilogue is None else recordings.record(epilogue, "epilogue", gated, x)
    weight = held.packed if isinstance(held, PackedWeight) else held
    call = LinearCall(x, weight, bias, before, after)
    return torch.ops.torchyard_kernels.linear_fused(*_ops.arguments_of(call))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(3, 64), (64,), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_the_second_call_takes_the_fast_path_with_the_same_bits(counted, dtype, packed, shape):
    weight = torch.randn(128, 64).to(dtype)
    held = PackedWeight(weight) if packed else weight
    bias, x = torch.randn(128).to(dtype), torch.randn(shape).to(dtype)
    full = torch.randn(*shape[:-1], 128).to(dtype)
    row, column = torch.randn(*shape[:-1], 1), torch.randn(64).to(dtype)
    one, scalar = torch.randn(1), torch.randn(())
    cases = (
        ({"epilogue": gelu}, False),
        ({"epilogue": lambda y: y + full}, False),
        ({"epilogue": lambda y: y.float() * one + scalar}, False),
        ({"epilogue": lambda gate, up: silu(gate) * up * column}, True),
        ({"prologue": lambda x: x * row * column}, False),
        ({"prologue": torch.tanh, "epilogue": lambda y: y * full}, False),
    )
    for functions, gated in cases:
        expected = by_op(x, held, bias, **functions, gated=gated)
        first = linear(x, held, bias, **functions)
        counted.clear()
        second = linear(x, held, bias, **functions)
        assert not counted
        assert torch.equal(first, expected)
        assert torch.equal(second, expected)
        assert second.dtype == expected.dtype
        assert second.is_contiguous()


def test_the_tensors_of_each_call_are_read(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)

    def add(residual):
        return linear(x, weight, epilogue=lambda y: y + residual)

    add(torch.randn(3, 40))
    counted.clear()
    for _ in range(2):
        residual = torch.randn(3, 40)
        torch.testing.assert_close(add(residual), x @ weight.T + residual)
    assert not counted
    # Rows that lie in no single stride, another spread, another dtype.
    for other in (torch.randn(40, 3).T, torch.randn(40), torch.randn(3, 40).half()):
        torch.testing.assert_close(add(other), (x @ weight.T + other), check_dtype=False)


def test_default_arguments_and_globals_are_part_of_a_function(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    product = x @ weight.T
    for scale in (2.0, 3.0, 2):
        for _ in range(2):
            torch.testing.assert_close(
                linear(x, weight, epilogue=lambda y, by=scale: y * by), product * scale
            )
    residual = torch.randn(40)
    for _ in range(2):
        found = linear(x, weight, epilogue=lambda y, r=residual: y - r)
        torch.testing.assert_close(found, product - residual)


@pytest.mark.parametrize("seen", ["item", "branch", "view"])
def test_functions_that_look_at_values_are_recorded_each_time(counted, seen):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    product = linear(x, weight)

    def apply(tensor):
        if seen == "item":
            return lambda y: y * tensor * tensor.sum().item()
        if seen == "branch":
            return lambda y: y + tensor if tensor.sum() > 0 else y - tensor
        return lambda y: y + tensor[:1]

    for tensor in (torch.full((40,), 0.025), torch.full((40,), -0.025)):
        for _ in range(2):
            function = apply(tensor)
            torch.testing.assert_close(linear(x, weight, epilogue=function), function(product))
    assert len(counted) == 4


def test_what_others_take_part_in_goes_through_the_op(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    expected = linear(x, weight, epilogue=gelu)
    linear(x, weight, epilogue=gelu)
    counted.clear()
    with FlopCounterMode(display=False):
        linear(x, weight, epilogue=gelu)
    assert len(counted) == 1
    grad = linear(x.clone().requires_grad_(), weight, epilogue=gelu)
    assert grad.requires_grad
    torch.testing.assert_close(grad.detach(), expected)


def test_wrong_calls_are_refused_after_right_ones_too(counted):
    x, weight, bias = torch.randn(3, 64), torch.randn(40, 64), torch.randn(40)
    residual = torch.randn(3, 40)
    for _ in range(2):
        linear(x, weight, bias, epilogue=lambda y: y + residual)
    with pytest.raises(ValueError, match="x: expected a last dimension of 64"):
        linear(x[:, :63], weight, bias, epilogue=lambda y: y + residual)
    with pytest.raises(TypeError, match="weight: expected a dense tensor"):
        linear(x, None, bias, epilogue=lambda y: y + residual)
    residual = torch.randn(4, 40)
    with pytest.raises(ValueError, match="broadcast"):
        linear(x, weight, bias, epilogue=lambda y: y + residual)


def test_another_demand_is_another_decision(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    for _ in range(2):
        native = linear(x, weight, epilogue=gelu)
    counted.clear()
    with torchyard.use(linear="kernels.composed"):
        composed = linear(x, weight, epilogue=gelu)
    assert len(counted) == 1
    torch.testing.assert_close(composed, native)


def test_of_several_paths_the_last_one_used_is_tried_first(counted):
    def twice(y):
        return y + y

    for dtype in DTYPES:
        x, weight = torch.randn(3, 64).to(dtype), torch.randn(40, 64).to(dtype)
        for _ in range(2):
            linear(x, weight, epilogue=twice)
        calls = next(
            calls
            for (_, last, _), calls in decision_cache()[_ops.FAST_PATH._paths_key].calls.items()
            if last == recordings.record(twice, "epilogue", False, x).text
        )
        assert calls[0](x, weight, PLAIN_WEIGHT, None, (), ()) is not None
        assert all(call(x, weight, PLAIN_WEIGHT, None, (), ()) is None for call in calls[1:])
    assert len(calls) == 3
    counted.clear()
    for dtype in DTYPES:
        x, weight = torch.randn(3, 64).to(dtype), torch.randn(40, 64).to(dtype)
        assert torch.equal(
            linear(x, weight, epilogue=twice), by_op(x, weight, None, epilogue=twice)
        )
    assert not counted
