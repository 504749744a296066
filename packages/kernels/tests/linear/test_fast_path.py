"""Repeated calls take the fast path with the same bits, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import torchyard
from torchyard.dispatch import decision_cache
from torchyard_kernels import PackedWeight, bmm, linear, matmul
from torchyard_kernels.linear import _api, _ops
from torchyard_programs import ProgramError

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.fixture
def counted(monkeypatch):
    """Count the calls that no path takes, under settings of their own."""
    calls = []
    compute = _ops.compute
    monkeypatch.setattr(_api, "compute", lambda call: calls.append(call) or compute(call))
    with torchyard.use(linear="cpu.native"):
        decision_cache().clear()
        linear(torch.ones(2, 2), torch.ones(2, 2))
        calls.clear()
        yield calls


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(3, 64), (64,), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_the_second_call_takes_the_fast_path_with_the_same_bits(
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


def test_rows_in_two_strides_are_read_in_place(counted):
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
    with pytest.raises(TypeError, match="weight: expected a dense tensor"):
        linear(x, None, bias)


@pytest.mark.parametrize("function", [None, torch.relu], ids=["alone", "with a function"])
def test_a_packed_weight_of_another_depth_is_refused_after_right_calls(counted, function):
    # Of bfloat16 pairs lie side by side: 31 and 32 columns take the same room.
    weights = {depth: PackedWeight(torch.randn(40, depth).bfloat16()) for depth in (31, 32)}
    for depth, other in ((31, 32), (32, 31)):
        x = torch.randn(3, depth).bfloat16()
        for _ in range(3):
            linear(x, weights[depth], epilogue=function)
        with pytest.raises(ValueError, match=f"x: expected a last dimension of {other}"):
            linear(x, weights[other], epilogue=function)


def test_tensors_on_several_devices_are_named(counted):
    x, weight, bias = torch.randn(3, 8), torch.randn(4, 8), torch.randn(4)
    far = [tensor.to("meta") for tensor in (weight, bias)]
    for _ in range(2):
        linear(x, weight, bias)
        with pytest.raises(TypeError, match="weight: expected the device of x, cpu, got meta"):
            linear(x, far[0], bias)
        with pytest.raises(TypeError, match="weight: expected the device of x, cpu, got meta"):
            linear(x, PackedWeight(weight).to("meta"), bias)
        with pytest.raises(TypeError, match="bias: expected the device of x, cpu, got meta"):
            linear(x, weight, far[1])
        with pytest.raises(TypeError, match="b: expected the device of a, cpu, got meta"):
            matmul(x, far[0].mT)
        with pytest.raises(ProgramError, match="epilogue: expected captured tensors on cpu"):
            linear(x, weight, epilogue=lambda y: y * far[1])


def test_a_weight_in_place_changed_is_seen(counted):
    x, weight = torch.randn(3, 64), torch.randn(40, 64)
    linear(x, weight)
    weight.zero_()
    assert not linear(x, weight).any()


# Shapes of both factors.
FACTORS = [
    (matmul, (3, 64), (64, 40)),
    (matmul, (64,), (64, 40)),
    (matmul, (2, 3, 64), (64, 40)),
    (matmul, (2, 1, 3, 64), (64, 40)),
    (matmul, (5, 3, 64), (5, 64, 40)),
    (bmm, (5, 3, 64), (5, 64, 40)),
    (bmm, (1, 3, 64), (1, 64, 40)),
    (bmm, (5, 3, 1), (5, 1, 1)),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("function", "left", "right"), FACTORS)
def test_a_second_product_takes_the_fast_path_with_the_same_bits(
    counted, function, left, right, turned, dtype
):
    a, b = torch.randn(left).to(dtype), torch.randn(right).to(dtype)
    if turned:
        b = b.mT.contiguous().mT
    # Decides, where nothing else has.
    first = torch.ops.torchyard_kernels.linear(a, [b.mT], "", None)
    second = function(a, b)
    assert not counted
    assert torch.equal(first, second)
    assert second.is_contiguous()
    wide = getattr(torch, function.__name__)(a.double(), b.double())
    assert second.shape == wide.shape
    # Sums are float32; a result is rounded once.
    most = torch.finfo(dtype).eps * wide.abs() + 64 * torch.finfo(torch.float32).eps * (
        a.double().abs() @ b.double().abs()
    )
    assert ((second.double() - wide).abs() <= most).all()


def test_batches_of_a_larger_tensor_are_read_in_place(counted):
    a = torch.randn(3, 7, 80).transpose(0, 1)[1:6, :, 8:72]
    b = torch.randn(5, 64, 90)[:, :, 3:43]
    first = bmm(a, b)
    counted.clear()
    second = bmm(a, b)
    assert not counted
    assert torch.equal(first, second)
    torch.testing.assert_close(second, torch.bmm(a, b))


def test_products_outside_of_the_fast_path_are_computed(counted):
    a, b = torch.randn(5, 3, 64), torch.randn(5, 64, 40)
    expected = bmm(a, b)
    bmm(a, b)
    counted.clear()
    # Batches that broadcast, and a second factor of one dimension.
    torch.testing.assert_close(matmul(a[:1], b), a[:1] @ b)
    torch.testing.assert_close(matmul(a, b[0, :, 0]), a @ b[0, :, 0])
    bmm(a.requires_grad_(), b).sum().backward()
    assert a.grad is not None
    with FlopCounterMode(display=False):
        bmm(a.detach(), b)
    assert len(counted) >= 4
    torch.testing.assert_close(bmm(a.detach(), b), expected)


def test_wrong_products_are_refused_after_right_ones_too(counted):
    a, b = torch.randn(5, 3, 64), torch.randn(5, 64, 40)
    for _ in range(2):
        bmm(a, b)
        matmul(a, b)
        matmul(a[0], b[0])
        matmul(a, b[0])
    for wrong in ((a[0], b[0]), (a, b[0]), (a[0], b), (a[:4], b), (a[:, :, :63], b)):
        with pytest.raises(ValueError, match=r"bmm: [ab]: expected"):
            bmm(*wrong)
    for wrong in ((a[:4], b), (a[:, :, :63], b), (a[0, :, :63], b[0])):
        with pytest.raises(ValueError, match="matmul: b: expected"):
            matmul(*wrong)
    for function in (bmm, matmul):
        with pytest.raises(TypeError, match="b: expected the dtype of a"):
            function(a, b.half())
        with pytest.raises(TypeError, match="b: expected a dense tensor"):
            function(a, None)
