"""Products follow torch.autocast as torch's do; the other ops keep to the dtypes they are given."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import torchyard
from torchyard import ContractId
from torchyard_kernels import (
    PackedRecurrent,
    PackedWeight,
    bmm,
    foreach_map,
    gru,
    linear,
    lstm,
    matmul,
    topk,
)
from torchyard_kernels.linear.contract import LINEAR, LinearRequest
from torchyard_kernels.recurrent.contract import FORWARD, RecurrentKind, RecurrentRequest

LOW = (torch.bfloat16, torch.float16)
INT8 = (("activation", 0), ("asymmetric", 0), ("group", 0))


def names(**changes):
    request = replace(LinearRequest("cpu", "float32", 5, 96, 64), **changes)
    decision = torchyard.registry().decide(LINEAR, request)
    return tuple(c.name for c in decision.trace if c.verdict is not None and c.verdict.supported)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def autocast(dtype=torch.bfloat16):
    return torch.autocast("cpu", dtype=dtype)


def demanded(name):
    """Demand an implementation; None leaves the choice, whose second call goes directly."""
    return torchyard.use(linear=name) if name else contextlib.nullcontext()


@pytest.fixture(params=[None, *names()], ids=str)
def implementation(request):
    with demanded(request.param):
        yield request.param


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_product_is_that_of_the_cast_arguments(implementation, dtype, given):
    x, weight, bias = normal(5, 64).to(given), normal(48, 64, seed=1), normal(48, seed=2)
    expected = linear(x.to(dtype), weight.to(dtype), bias.to(dtype))
    with autocast(dtype):
        for _ in range(2):
            out = linear(x, weight, bias)
            assert out.dtype == F.linear(x, weight, bias).dtype == dtype
            assert torch.equal(out, expected)


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize(
    ("ours", "torchs", "left", "right"),
    [
        (matmul, torch.matmul, (5, 64), (64, 48)),
        (matmul, torch.matmul, (64,), (3, 64, 48)),
        (matmul, torch.matmul, (2, 5, 64), (64,)),
        (bmm, torch.bmm, (2, 5, 64), (2, 64, 48)),
    ],
)
def test_factors_are_cast_alike(implementation, dtype, ours, torchs, left, right):
    a, b = normal(*left), normal(*right, seed=1)
    expected = ours(a.to(dtype), b.to(dtype))
    with autocast(dtype):
        for _ in range(2):
            assert ours(a, b).dtype == torchs(a, b).dtype == dtype
            assert torch.equal(ours(a, b), expected)


@pytest.mark.parametrize("held", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("format", "name"),
    [
        (format, name)
        for format, options in (("panels", ()), ("int8", INT8))
        for name in (None, *names(weight=format, weight_options=options))
    ],
)
def test_a_packed_weight_stays_and_the_others_follow_it(format, name, held):
    packed = PackedWeight(normal(48, 64).to(held), format)
    x, bias = normal(5, 64, seed=1), normal(48, seed=2)
    with demanded(name):
        expected = linear(x.to(held), packed, bias.to(held))
        with autocast():
            for _ in range(2):
                assert torch.equal(linear(x, packed, bias), expected)


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        *((name, False) for name in (None, *names(prologue="p", epilogue="e", gated=True))),
        # With gradients they are torch's operators, beside a product of whoever is demanded.
        *((name, True) for name in (None, *names())),
    ],
)
def test_functions_compute_in_what_they_are_given(name, recorded):
    x, weight = normal(5, 64), normal(96, 64, seed=1).requires_grad_(recorded)
    scale = torch.rand(64)

    def prologue(x):
        return F.softplus(x * scale)

    def epilogue(gate, up):
        return F.silu(gate) * up.exp()

    low = x.bfloat16(), weight.bfloat16()
    with demanded(name):
        with autocast():
            out = linear(x, weight, prologue=prologue, epilogue=epilogue)
        assert torch.equal(out, linear(*low, prologue=prologue, epilogue=epilogue))


def test_gradients_come_in_the_parameters_own_dtype(implementation):
    x, weight, bias = (
        normal(*shape, seed=seed).requires_grad_()
        for seed, shape in enumerate([(5, 64), (48, 64), (48,)])
    )
    with autocast():
        out = linear(x, weight, bias)
    ours = torch.autograd.grad(out, (x, weight, bias), torch.ones_like(out))
    with autocast():
        out = F.linear(x, weight, bias)
    torchs = torch.autograd.grad(out, (x, weight, bias), torch.ones_like(out))
    for mine, theirs in zip(ours, torchs, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)


def test_float64_is_refused_beside_what_is_cast():
    with autocast(), pytest.raises(TypeError, match=r"weight: expected the dtype of x"):
        linear(normal(5, 64).double(), normal(48, 64))


def test_autocast_for_another_device_changes_nothing():
    x, weight = normal(5, 64), normal(48, 64)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
        assert linear(x, weight).dtype == torch.float32


def test_a_compiled_product_is_cast_as_an_eager_one():
    x, weight = normal(5, 64), normal(48, 64)
    given, state, weights = layers("gru")

    def call():
        with torch.no_grad():
            out, _ = gru(given, state, weights)
        return linear(x, weight), linear(x, weight, epilogue=torch.relu), matmul(x, weight.t()), out

    with autocast():
        expected = call()
        found = torch.compile(call, fullgraph=True, backend="aot_eager")()
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.bfloat16
        assert torch.equal(mine, theirs)


def layers(kind, dtype=torch.float32):
    gates = 4 if kind == "lstm" else 3
    hidden = normal(1, 2, 24, seed=1).to(dtype)
    weights = [
        normal(gates * 24, width, seed=seed).to(dtype).requires_grad_()
        for seed, width in ((2, 16), (3, 24))
    ]
    return normal(3, 2, 16).to(dtype), (hidden, hidden) if kind == "lstm" else hidden, weights


LAYERS = [("lstm", lstm), ("gru", gru)]


def serving(kind, recorded):
    asked = RecurrentRequest("cpu", "bfloat16", RecurrentKind(kind), 3, 2, 16, 24, bias=False)
    decision = torchyard.registry().decide(FORWARD, replace(asked, grad=recorded))
    return [c.name for c in decision.trace if c.verdict is not None and c.verdict.supported]


@pytest.mark.parametrize(
    ("kind", "function", "name", "recorded"),
    [
        (kind, function, name, recorded)
        for kind, function in LAYERS
        for recorded in (False, True)
        for name in (None, *serving(kind, recorded))
    ],
)
def test_a_recurrent_layer_is_that_of_the_cast_arguments(kind, function, name, recorded):
    low = function(*layers(kind, torch.bfloat16), implementation=name)
    x, state, weights = layers(kind)
    with torch.set_grad_enabled(recorded), autocast():
        for _ in range(2):
            found = function(x, state, weights, implementation=name)
            for mine, theirs in zip(tensors(found), tensors(low), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0.02)
    if recorded:
        for gradient in torch.autograd.grad(found.output.float().sum(), weights):
            assert gradient.dtype == torch.float32
            assert gradient.any()


@pytest.mark.parametrize(("kind", "function"), LAYERS)
@torch.no_grad()
def test_packed_recurrent_weights_stay(kind, function):
    x, state, weights = layers(kind)
    packed = PackedRecurrent(kind, weights)
    expected = function(x, state, packed)
    with autocast():
        found = function(x.bfloat16().float(), state, packed)
        low = function(x.bfloat16(), state, packed)
    assert tensors(found)[0].dtype == tensors(low)[0].dtype == torch.float32
    for mine, theirs, near in zip(*map(tensors, (found, low, expected)), strict=True):
        assert torch.equal(mine, theirs)
        torch.testing.assert_close(mine, near, rtol=0.02, atol=0.02)


OPS = {
    "topk/1": lambda: topk(normal(4, 100), 7),
    "pointwise/1": lambda: foreach_map(F.softplus, [normal(40), normal(3, 3)]),
}
CASES = [
    (contract, name)
    for contract in OPS
    for name in torchyard.registry().order(ContractId.parse(contract), "cpu")
]


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors(part)]


def test_every_op_is_tested_by_torchs_operators():
    by_torch = {"kernels.sort", "kernels.map"}
    assert {contract for contract, name in CASES if name in by_torch} == {*OPS}


@pytest.mark.parametrize(("contract", "name"), CASES)
def test_the_other_ops_keep_the_dtypes_they_are_given(contract, name):
    with torchyard.use(**{contract.partition("/")[0]: name}):
        expected = tensors(OPS[contract]())
        with autocast():
            found = tensors(OPS[contract]())
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
