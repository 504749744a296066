"""Gradients, compiled graphs, exported programs and torch's own check of an op."""

from __future__ import annotations

import pytest
import torch

from torchyard_kernels import PackedGradientError, PackedWeight, bmm, linear, matmul

from .error import excess

linear_op = torch.ops.torchyard_kernels.linear.default


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()


def doubles(*shapes):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def test_gradients_and_their_gradients_are_right():
    x, weight, bias = doubles((2, 3, 5), (4, 5), (4,))
    assert torch.autograd.gradcheck(linear, (x, weight, bias))
    assert torch.autograd.gradgradcheck(linear, (x, weight, bias))


def test_gradients_of_matmul_and_bmm_are_right():
    assert torch.autograd.gradcheck(bmm, doubles((2, 3, 5), (2, 5, 4)))
    assert torch.autograd.gradcheck(matmul, doubles((2, 1, 3, 5), (3, 5, 4)))
    assert torch.autograd.gradcheck(matmul, doubles((5,), (5,)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_gradients_are_within_the_error_of_float32_sums(dtype):
    x, weight, bias = (
        t.detach().to(dtype).requires_grad_() for t in doubles((9, 40), (33, 40), 33)
    )
    seed = torch.randn(9, 33).to(dtype)
    got = torch.autograd.grad(linear(x, weight, bias), (x, weight, bias), seed)
    assert [gradient.dtype for gradient in got] == [dtype] * 3
    assert excess(got[0], seed, weight.detach().t(), None) <= 1
    assert excess(got[1], seed.t(), x.detach().t(), None) <= 1
    assert excess(got[2][:, None], seed.t(), torch.ones(1, 9, dtype=dtype), None) <= 1


def test_a_packed_weight_passes_the_gradient_of_x_and_refuses_its_own():
    x, weight, bias = (t.detach().float() for t in doubles((3, 8), (6, 8), (6,)))
    packed = PackedWeight(weight)
    x.requires_grad_()
    bias.requires_grad_()
    got = torch.autograd.grad(linear(x, packed, bias).sum(), (x, bias))
    expected = torch.autograd.grad(torch.nn.functional.linear(x, weight, bias).sum(), (x, bias))
    for ours, torchs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, torchs)
    packed.data.requires_grad_()
    with pytest.raises(PackedGradientError, match="gradient of a packed weight was asked for"):
        linear(x, packed, bias).sum().backward()


def test_compiled_is_one_graph_and_equals_eager():
    weight = torch.randn(64, 48)
    packed = PackedWeight(weight)

    def both(x, bias):
        y = linear(x, packed, bias, prologue=torch.tanh, epilogue=lambda g, u: g * u)
        return linear(y, weight[:, :32]).sum()

    x, bias = torch.randn(3, 48, requires_grad=True), torch.randn(64, requires_grad=True)
    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, bias), both(x, bias))
    for ours, eager in zip(
        torch.autograd.grad(compiled(x, bias), (x, bias)),
        torch.autograd.grad(both(x, bias), (x, bias)),
        strict=True,
    ):
        torch.testing.assert_close(ours, eager)


class Layer(torch.nn.Module):
    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = weight, torch.nn.Parameter(bias)

    def forward(self, x):
        return linear(x, self.weight, self.bias)


@pytest.mark.parametrize("packed", [False, True])
def test_an_exported_program_calls_the_op_for_any_batch(packed):
    weight, bias = torch.randn(10, 6), torch.randn(10)
    layer = Layer(PackedWeight(weight) if packed else torch.nn.Parameter(weight), bias)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(layer, (torch.randn(3, 6),), dynamic_shapes=({0: batch},))
    assert [node.target for node in program.graph.nodes if node.op == "call_function"].count(
        linear_op
    ) == 1
    x = torch.randn(7, 6)
    torch.testing.assert_close(program.module()(x), torch.nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_torchs_check_of_the_op_passes(requires_grad):
    x, weight, bias = (
        torch.randn(shape, requires_grad=requires_grad) for shape in ((4, 6), (8, 6), (8,))
    )
    batched = torch.randn(2, 4, 6, requires_grad=requires_grad)
    weights = torch.randn(2, 8, 6, requires_grad=requires_grad)
    packed = PackedWeight(weight)
    for args in (
        (x, [weight], "", bias),
        (batched, [weights], "", None),
        (x, packed.tensors, packed.spec_text, bias),
    ):
        result = torch.library.opcheck(linear_op, args)
        assert set(result.values()) == {"SUCCESS"}
