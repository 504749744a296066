"""foreach_map is an op like torch's own: gradients, compiled graphs, exported programs, fakes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchyard_kernels import foreach_map, foreach_map_

SCALE = torch.tensor(1.5)


def gate(x: Any, y: Any, a: Any) -> Any:
    return torch.nn.functional.silu(x) * y * a + SCALE


def inputs(dtype: torch.dtype = torch.float32, grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [(3, 4), (5,), (4,), ()]
    return [torch.randn(shape, dtype=dtype, requires_grad=grad) for shape in shapes]


def mapped(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return list(foreach_map(gate, list(tensors[:2]), list(tensors[2:]), 0.5))


def test_gradients_of_all_orders_are_right() -> None:
    tensors = inputs(torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda *t: tuple(mapped(*t)), tensors)
    assert torch.autograd.gradgradcheck(lambda *t: tuple(mapped(*t)), tensors)


def test_gradients_reach_captured_tensors_and_skip_what_needs_none() -> None:
    scale = torch.tensor(2.0, requires_grad=True)
    x = torch.randn(4)
    result = foreach_map(lambda x, y: (x * scale, x > y), [x, x], 0.0)
    assert [tensor.requires_grad for tensor in result[1]] == [False, False]
    torch.stack([tensor.sum() for tensor in result[0]]).sum().backward()
    torch.testing.assert_close(scale.grad, 2 * x.sum())


def test_half_precision_gradients_are_those_of_the_wide_computation() -> None:
    x = torch.randn(64).bfloat16().requires_grad_()
    foreach_map(lambda x: torch.tanh(x) * 2, [x])[0].float().sum().backward()
    exact = 2 * (1 - torch.tanh(x.detach().double()) ** 2)
    eps = torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(x.grad.double(), exact, rtol=eps, atol=eps)


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_graphs_are_whole_and_agree(backend: str) -> None:
    tensors = inputs(grad=True)
    expected = mapped(*tensors)
    torch.compiler.reset()
    compiled = torch.compile(mapped, fullgraph=True, backend=backend)
    found = compiled(*tensors)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    grads = torch.autograd.grad([t.sum() for t in found], tensors)
    wanted = torch.autograd.grad([t.sum() for t in expected], tensors)
    for one, other in zip(grads, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_compiled_graph_writes_in_place() -> None:
    def step(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> torch.Tensor:
        foreach_map_(lambda x, y: x * 2 + y, xs, ys)
        return xs[0] + 1

    torch.compiler.reset()
    xs, ys = inputs()[:2], inputs()[2:]
    before = [x.clone() for x in xs]
    result = torch.compile(step, fullgraph=True, backend="aot_eager")(xs, ys)
    for x, old, y in zip(xs, before, ys, strict=True):
        torch.testing.assert_close(x, old * 2 + y)
    assert torch.equal(result, xs[0] + 1)


def test_an_exported_program_computes_the_same() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(foreach_map(lambda x: torch.tanh(x) + 1, [x, y]))

    x, y = torch.randn(3), torch.randn(2, 2)
    program = torch.export.export(Module(), (x, y))
    assert "torchyard_kernels.pointwise" in str(program.graph)
    for one, other in zip(program.module()(x, y), Module()(x, y), strict=True):
        assert torch.equal(one, other)


def test_fake_tensors_have_shapes_and_dtypes_and_no_values() -> None:
    with FakeTensorMode():
        x, y = torch.empty(3, 1, dtype=torch.bfloat16), torch.empty(4)
        total, small = foreach_map(lambda x, y: (x + y, x > 0), [x], [y])
    assert (total[0].shape, total[0].dtype) == ((3, 4), torch.float32)
    assert (small[0].shape, small[0].dtype) == ((3, 4), torch.bool)


def test_the_ops_keep_torchs_rules() -> None:
    text = '["mul",["x0","x1"],{}]\n"%0"'
    tensors = [torch.randn(3, requires_grad=True), torch.randn(2, 2), torch.randn(3), torch.ones(2)]
    op = torch.ops.torchyard_kernels
    torch.library.opcheck(op.pointwise.default, (tensors, None, None, "TT", 2, text, ""))
    out = [torch.zeros(3), torch.zeros(2, 2)]
    given = [tensor.detach() for tensor in tensors]
    torch.library.opcheck(op.pointwise_.default, (out, given, None, None, "TT", 2, text, ""))
