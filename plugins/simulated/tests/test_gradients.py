"""Gradients of strided, expanded and overlapping views equal the CPU's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

_CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: (x.t() * x.t().exp()).sum(0),
    "transposed contiguous": lambda x: x.t().contiguous().cumsum(0),
    "expanded": lambda x: (x.unsqueeze(1).expand(4, 3, 6) * 2).tanh(),
    "expanded and reduced": lambda x: x[:, :1].expand(4, 6).mul(x).sum(),
    "strided slice": lambda x: x[::2, 1::2].sin(),
    "permuted matmul": lambda x: torch.einsum("ij,kj->ik", x, x),
    "unfolded": lambda x: x.unfold(1, 3, 1).square(),
    "as_strided with overlap": lambda x: x.as_strided((4, 3), (1, 2), 1).cos(),
    "diagonal": lambda x: x.diagonal(offset=1).prod(),
    "reshaped transpose": lambda x: x.t().reshape(3, 8).softmax(-1),
    "split and cat": lambda x: torch.cat(torch.split(x, 2, dim=1)[::-1], dim=0).log1p(),
    "gather": lambda x: x.gather(1, x.argsort(1)).sqrt(),
    "index_put": lambda x: x.clone().index_put((x.argmax(0),), x.new_ones(6)) * x,
    "in place on a view": lambda x: _in_place_on_a_view(x),
    "where": lambda x: torch.where(x.t() > 0.5, x.t(), -x.t()),
    "layer norm of a transpose": lambda x: functional.layer_norm(x.t(), (4,)),
    "group norm": lambda x: functional.group_norm(x.t()[None], 2),
    "padded": lambda x: functional.pad(x.t(), (1, 2), mode="constant"),
    "conv1d": lambda x: functional.conv1d(x[None], x[:2, :3].expand(4, 2, 3).transpose(0, 1)),
    "cross entropy": lambda x: functional.cross_entropy(x.t(), x.t().argmax(1)),
}


def _in_place_on_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y.t()[1].mul_(x.t()[0])
    return y.square()


@pytest.mark.parametrize("name", _CASES)
@pytest.mark.parametrize("base", ["contiguous", "transposed", "expanded", "strided"])
def test_values_and_gradients_equal_the_cpus(name: str, base: str) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(4, 6, 2, generator=generator, dtype=torch.float64) + 0.1
    results = []
    for device in ("cpu", "simulated"):
        leaf = values.to(device)
        if base == "contiguous":
            leaf = leaf[..., 0].clone()
        elif base == "strided":
            leaf = leaf[..., 1]
        elif base == "transposed":
            leaf = leaf[..., 0].t().clone().t()
        else:
            leaf = leaf[:1, :, 0].expand(4, 6)
        leaf = leaf.detach().requires_grad_()
        out = _CASES[name](leaf)
        # A gradient that is not uniform, and not contiguous either.
        weight = torch.linspace(0.5, 1.5, out.numel(), dtype=torch.float64).reshape(out.shape)
        (gradient,) = torch.autograd.grad(out, leaf, weight.to(device))
        results.append((out.detach().cpu(), gradient.cpu()))
    (out_cpu, gradient_cpu), (out_device, gradient_device) = results
    # Not bitwise: torch composes layer and group norm of a foreign device from other operators.
    torch.testing.assert_close(out_device, out_cpu, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient_device, gradient_cpu, rtol=1e-11, atol=1e-12)


def test_second_derivatives() -> None:
    results = []
    for device in ("cpu", "simulated"):
        x = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3).to(device).requires_grad_()
        (first,) = torch.autograd.grad(x.t().pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        results.append(second.cpu())
    assert torch.equal(*results)


def test_gradcheck_on_a_strided_input() -> None:
    x = torch.rand(3, 4, dtype=torch.float64).to("simulated").t().detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x @ x.t()).tanh(), (x,))


def test_a_backward_on_a_side_stream_joins_the_callers_stream() -> None:
    side = torch.Stream("simulated")
    x = torch.ones(4, device="simulated", requires_grad=True)
    torch.accelerator.synchronize()
    with side:
        y = (x * 3).sum()
        y.backward()
    side.synchronize()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_scaled_dot_product_attention_equals_the_cpus(causal: bool, layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 2, 5, 7, 4, generator=generator, dtype=torch.float64)
    results = []
    for device in ("cpu", "simulated"):
        inputs = values.to(device)
        if layout == "transposed":
            inputs = inputs.transpose(2, 3).contiguous().transpose(2, 3)
        q, k, v = (x.detach().requires_grad_() for x in inputs)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        gradients = torch.autograd.grad(out.square().sum(), (q, k, v))
        results.append([out.detach().cpu(), *(g.cpu() for g in gradients)])
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)
