"""Operators of a device beside the CPU's: dtypes, views, broadcast and empty tensors, gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from torchyard_conformance._device._model import compare
from torchyard_conformance._outcome import violated

__all__ = ["CALLS", "LAYOUTS", "bases", "check_operators"]

_Call = Callable[[Tensor, Tensor], Tensor]
_Layout = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

# Of bfloat16, of values about 1: four roundings.
_OF_HALF: Final = 1.6e-2


def _changed(x: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change a copy of a tensor that has gaps between its elements, and return it."""
    into = x.new_zeros((*x.shape, 2))[..., 0]
    into.copy_(x)
    return change(into)


def _out(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty(0, dtype=x.dtype, device=x.device)
    return torch.mul(x.detach(), y.detach(), out=out)


# Each of x and y, which broadcasts to x; the second group is of floating-point numbers alone.
_OF_NUMBERS: Final[Mapping[str, _Call]] = MappingProxyType(
    {
        "add": lambda x, y: x + y,
        "add of a number": lambda x, y: 3 + x,
        "sub with alpha": lambda x, y: torch.sub(x, y, alpha=2),
        "mul": lambda x, y: x * y,
        "mul of a number": lambda x, y: x * 3,
        "mul of another dtype": lambda x, y: x * (y > 0),
        "neg": lambda x, y: -x,
        "abs": lambda x, y: x.abs(),
        "sign": lambda x, y: x.sign(),
        "maximum": torch.maximum,
        "clamp": lambda x, y: x.clamp(-1, 2),
        "relu": lambda x, y: x.relu(),
        "where": lambda x, y: torch.where(x > y, x, y),
        "eq": lambda x, y: x.eq(y),
        "lt of a number": lambda x, y: x.lt(1),
        "to int32": lambda x, y: x.to(torch.int32),
        "sum": lambda x, y: x.sum(),
        "sum of rows": lambda x, y: x.sum(0, keepdim=True),
        "cumsum": lambda x, y: x.cumsum(1),
        "flip": lambda x, y: x.flip(1),
        "cat": lambda x, y: torch.cat([x, y.expand_as(x)], 1),
        "stack": lambda x, y: torch.stack([x, y.expand_as(x)], 1),
        "index_select": lambda x, y: x.index_select(1, x.new_tensor([3, 0]).long()),
        "gather": lambda x, y: x.gather(1, (y.expand_as(x).abs() * 0).long() + 2),
        "masked_fill": lambda x, y: x.masked_fill(y > 0, 7),
        "tril": lambda x, y: x.tril(),
        "sort": lambda x, y: x.sort(stable=True, dim=1).values,
        "add_": lambda x, y: _changed(x, lambda z: z.add_(y)),
        "mul_": lambda x, y: _changed(x, lambda z: z.mul_(y)),
        "fill_ of a part": lambda x, y: _changed(x, lambda z: z.narrow(1, 1, 2).fill_(5)),
        "mul, out": _out,
    }
)
_OF_FLOATS: Final[Mapping[str, _Call]] = MappingProxyType(
    {
        "div": lambda x, y: x / (y.abs() + 1),
        "exp": lambda x, y: x.exp(),
        "log": lambda x, y: (x.abs() + 1).log(),
        "sqrt": lambda x, y: (x.abs() + 1).sqrt(),
        "rsqrt": lambda x, y: (x.abs() + 1).rsqrt(),
        "sin": lambda x, y: x.sin(),
        "tanh": lambda x, y: x.tanh(),
        "sigmoid": lambda x, y: x.sigmoid(),
        "pow": lambda x, y: x**3,
        "gelu": lambda x, y: functional.gelu(x),
        "silu": lambda x, y: functional.silu(x),
        "mean": lambda x, y: x.mean(1),
        "var": lambda x, y: x.var(1, correction=0),
        "softmax": lambda x, y: x.softmax(1),
        "log_softmax": lambda x, y: x.log_softmax(1),
        "layer_norm": lambda x, y: functional.layer_norm(x + y, x.shape[1:]),
        "matmul": lambda x, y: x @ y.expand_as(x).mT,
        "addmm": lambda x, y: torch.addmm(x[:, :1], x, y.expand_as(x).mT),
        "bmm": lambda x, y: torch.bmm(x.expand(2, *x.shape), y.expand(2, *x.shape).mT),
    }
)
CALLS: Final[Mapping[str, _Call]] = MappingProxyType({**_OF_NUMBERS, **_OF_FLOATS})
# Of two bases [8, 12], so that a view's offset and strides are the device's own.
LAYOUTS: Final[Mapping[str, _Layout]] = MappingProxyType(
    {
        "dense": lambda x, y: (x, y),
        "transposed": lambda x, y: (x.t(), y.t()),
        "with gaps": lambda x, y: (x[1::2, ::3], y[1::2, 2::3]),
        "expanded": lambda x, y: (x[:, 4:5].expand(8, 12), y),
        "broadcast": lambda x, y: (x, y[2]),
        "empty": lambda x, y: (x[:0], y[:0]),
    }
)


def bases(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return two tensors [8, 12] of numbers of both signs, on the CPU."""
    generator = torch.Generator().manual_seed(0)
    if not dtype.is_floating_point:
        numbers = torch.randint(-5, 6, (2, 8, 12), generator=generator, dtype=dtype)
    else:
        numbers = torch.randn(2, 8, 12, generator=generator).to(dtype)
    return numbers[0].clone(), numbers[1].clone()


def check_operators(device: str) -> None:
    """Run operators, with their gradients, beside the CPU.

    Raises:
        Violated: an operator cannot be computed, or a result or a gradient differs.
    """
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        calls = CALLS if dtype.is_floating_point else _OF_NUMBERS
        for layout in LAYOUTS:
            for name in calls:
                _check(name, layout, dtype, device)


def _check(name: str, layout: str, dtype: torch.dtype, device: str) -> None:
    what = f"{name} of {str(dtype).removeprefix('torch.')}, {layout}"
    # Gradients of one dtype: formulas are torch's, and call the operators of all.
    wanted = dtype == torch.float32
    hosts = [base.requires_grad_(wanted) for base in bases(dtype)]
    there = [host.detach().to(device).requires_grad_(wanted) for host in hosts]
    expected = CALLS[name](*LAYOUTS[layout](*hosts))
    try:
        got = CALLS[name](*LAYOUTS[layout](*there))
        _compare(what, got, expected)
        if expected.requires_grad:
            above = torch.linspace(1, 2, expected.numel()).reshape(expected.shape)
            torch.autograd.backward(expected, above)
            torch.autograd.backward(got, above.to(device))
    except (NotImplementedError, RuntimeError) as error:
        violated(f"{what}: expected the device to compute it, got {error}")
    for host, other in zip(hosts, there, strict=True):
        if host.grad is not None and other.grad is None:
            violated(f"the gradient of {what}: expected one, got None")
        if host.grad is not None and other.grad is not None:
            _compare(f"the gradient of {what}", other.grad, host.grad)


def _compare(what: str, got: Tensor, expected: Tensor) -> None:
    if expected.dtype == torch.bfloat16:
        compare(what, got, expected, rtol=_OF_HALF, atol=_OF_HALF)
    else:
        compare(what, got, expected)
