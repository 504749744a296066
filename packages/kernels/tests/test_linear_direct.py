"""Calls that were decided before are served with the same bits, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchyard
from torchyard_kernels import PackedWeight, linear
from torchyard_kernels._linear import _ops

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.fixture
def counted(monkeypatch):
    """Count the calls that reach the op, under settings of their own."""
    calls = []
    product = _ops.product
    monkeypatch.setattr(
        "torchyard_kernels._linear._api.product",
        lambda *args: calls.append(args) or product(*args),
    )
    with torchyard.use(linear="cpu.native"):
        linear(torch.ones(2, 2), torch.ones(2, 2))
        calls.clear()
        yield calls


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(3, 64), (64,), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_the_second_call_is_served_directly_with_the_same_bits(
    counted, dtype, packed, biased, shape
):
    weight = torch.randn(96, 64).to(dtype)
    held = PackedWeight(weight) if packed else weight
    bias = torch.randn(96).to(dtype) if biased else None
    x = torch.randn(shape).to(dtype)
    first = torch.ops.torchyard_kernels.linear(
        x, *((held.tensors, held.spec_text) if packed else ([held], "")), bias
    )
    second = linear(x, held, bias)
    assert not counted
    assert torch.equal(first, second)
    assert second.shape == (*shape[:-1], 96)
    assert second.is_contiguous()


def test_rows_in_two_strides_are_served_where_they_lie(counted):
    x, weight = torch.randn(3, 5, 64).transpose(0, 1)[1:], torch.randn(40, 64)
    first = linear(x, weight)
    counted.clear()
    second = linear(x, weight)
    assert not counted
    assert torch.equal(first, second)
    torch.testing.assert_close(second, torch.nn.functional.linear(x, weight))


def test_what_others_take_part_in_goes_through_the_op(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    expected = linear(x, weight)
    counted.clear()
    with FlopCounterMode(display=False):
        linear(x, weight)
    linear(x.requires_grad_(), weight).sum().backward()
    assert x.grad is not None
    assert len(counted) == 2
    torch.testing.assert_close(linear(x.detach(), weight), expected)


def test_wrong_calls_are_refused_after_right_ones_too(counted):
    x, weight, bias = torch.randn(3, 64), torch.randn(40, 64), torch.randn(40)
    linear(x, weight, bias)
    linear(x, weight, bias)
    with pytest.raises(ValueError, match="x: expected a last dimension of 64"):
        linear(x[:, :63], weight, bias)
    with pytest.raises(ValueError, match=r"bias: expected \[40\]"):
        linear(x, weight, bias[:39])
    with pytest.raises(TypeError, match="weight: expected the dtype of x"):
        linear(x, weight.half(), bias)
    with pytest.raises(TypeError, match="weight: expected a tensor"):
        linear(x, None, bias)


def test_a_weight_in_place_changed_is_seen(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    linear(x, weight)
    weight.zero_()
    assert not linear(x, weight).any()
