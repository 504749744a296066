"""Arithmetic of a tensor with a number, or with a tensor of no dimensions, and its derivatives.

torch makes zeros without memory for tangents that an operand lacks; whoever reads them as tensors
reads nothing. Values and derivatives are compared with the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import jvp, vmap

# Of a tensor x, a scalar s (a number or a tensor of no dimensions) and one more tensor, y.
_Operation = Callable[[Tensor, Any, Tensor], Tensor]
_OPERATIONS: dict[str, _Operation] = {
    "add": lambda x, s, y: x + s,
    "radd": lambda x, s, y: s + x,
    "add alpha": lambda x, s, y: torch.add(x, s, alpha=3),
    "sub": lambda x, s, y: x - s,
    "rsub": lambda x, s, y: s - x,
    "mul": lambda x, s, y: x * s,
    "rmul": lambda x, s, y: s * x,
    "div": lambda x, s, y: x / s,
    "rdiv": lambda x, s, y: s / x,
    "remainder": lambda x, s, y: x % s,
    "pow": lambda x, s, y: x**s,
    "rpow": lambda x, s, y: s**x,
    "compare": lambda x, s, y: (x > s) * x + (s >= y) * y,
    "where": lambda x, s, y: torch.where(x > y, x, s),
    "where other": lambda x, s, y: torch.where(x > s, s, y) * x,
    "lerp": lambda x, s, y: torch.lerp(x, y, s),
    "clamp": lambda x, s, y: x.clamp(min=s) * y,
    "mul in place": lambda x, s, y: (x * y).mul_(s),
    "div in place": lambda x, s, y: (x * y).div_(s),
    "several": lambda x, s, y: (2 * x / s - 1) ** 2 * (s * y),
}
_WITH_NUMBERS: dict[str, _Operation] = {
    "addcmul value": lambda x, s, y: torch.addcmul(x, x, y, value=s),
    "addcdiv value": lambda x, s, y: torch.addcdiv(x, x, y, value=s),
    "foreach mul": lambda x, s, y: torch._foreach_mul([x, y], s)[0],
    "dot": lambda x, s, y: torch.dot(x[0], y[0]) * s,
    "vdot": lambda x, s, y: torch.vdot(x[0], y[0]) / s,
    "cross": lambda x, s, y: torch.linalg.cross(x[:, :3], y[:, :3]) * s,
}
_WITH_TENSORS: dict[str, _Operation] = {
    "addcmul": lambda x, s, y: torch.addcmul(x, y, s),
    "addcdiv": lambda x, s, y: torch.addcdiv(x, y, s),
    "maximum": lambda x, s, y: torch.maximum(x, s) * y,
    "atan2": lambda x, s, y: torch.atan2(x, s),
    "hypot": lambda x, s, y: torch.hypot(s, x),
}
_SCALARS: dict[str, Callable[[str], Any]] = {
    "float": lambda device: 0.75,
    "int": lambda device: 2,
    "CPU tensor": lambda device: torch.tensor(0.75, dtype=torch.float64),
    "wrapped int": lambda device: torch.tensor(2),
    "device tensor": lambda device: torch.tensor(0.75, dtype=torch.float64, device=device),
}
# torch itself refuses these with a tensor of the CPU, on every other device.
_OF_ONE_DEVICE = {"rpow", "clamp", "addcdiv"}
_ON_THE_CPU = {"CPU tensor", "wrapped int"}
_NAMES = [
    (name, kind)
    for kind in _SCALARS
    for name in (*_OPERATIONS, *(_WITH_TENSORS if "tensor" in kind else _WITH_NUMBERS))
    if name not in _OF_ONE_DEVICE or kind not in _ON_THE_CPU
]
_ALL = {**_OPERATIONS, **_WITH_NUMBERS, **_WITH_TENSORS}
_CASES = [pytest.param(_ALL[name], _SCALARS[kind], id=f"{name}-{kind}") for name, kind in _NAMES]


def _x(device: str) -> Tensor:
    return torch.linspace(0.2, 1.7, 12, dtype=torch.float64).reshape(3, 4).to(device)


def _y(device: str) -> Tensor:
    return torch.linspace(1.5, 0.4, 12, dtype=torch.float64).reshape(3, 4).to(device)


def _same(calculate: Callable[[str], list[Tensor | None]]) -> None:
    expected, got = calculate("cpu"), calculate("simulated")
    assert len(expected) == len(got)
    for one, other in zip(expected, got, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert other.device.type == "simulated"
        torch.testing.assert_close(other.cpu(), one, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(("operation", "scalar"), _CASES)
def test_values_and_reverse_mode(operation: _Operation, scalar: Callable[[str], Any]) -> None:
    def calculate(device: str) -> list[Tensor | None]:
        x, y = (make(device).requires_grad_() for make in (_x, _y))
        out = operation(x, scalar(device), y)
        first = torch.autograd.grad(
            out.square().sum(), (x, y), create_graph=True, allow_unused=True
        )
        used = [gradient for gradient in first if gradient is not None]
        doubled = sum((gradient.square().sum() for gradient in used), torch.zeros_like(out).sum())
        second = torch.autograd.grad(doubled, (x, y), allow_unused=True)
        return [out, *first, *second]

    _same(calculate)


@pytest.mark.parametrize("moving", ["x", "y", "both"])
@pytest.mark.parametrize(("operation", "scalar"), _CASES)
def test_forward_mode(operation: _Operation, scalar: Callable[[str], Any], moving: str) -> None:
    def calculate(device: str) -> list[Tensor | None]:
        x, y = _x(device), _y(device)
        with forward_ad.dual_level():
            if moving != "y":
                x = forward_ad.make_dual(x, _y(device).cos())
            if moving != "x":
                y = forward_ad.make_dual(y, _x(device).sin())
            out = forward_ad.unpack_dual(operation(x, scalar(device), y))
        return [out.primal, out.tangent]

    _same(calculate)


@pytest.mark.parametrize(("operation", "scalar"), _CASES)
def test_jvp_and_nested_transforms(operation: _Operation, scalar: Callable[[str], Any]) -> None:
    def calculate(device: str) -> list[Tensor | None]:
        x, y, s = _x(device), _y(device), scalar(device)

        def tangent(x: Tensor, y: Tensor) -> Tensor:
            moved: Tensor = jvp(lambda x: operation(x, s, y), (x,), (x.cos(),))[1]
            return moved

        again = jvp(lambda x: tangent(x, y), (x,), (torch.ones_like(x),))
        return [tangent(x, y), *again]

    _same(calculate)


@pytest.mark.parametrize(("name", "kind"), [case for case in _NAMES if case[0] in _OPERATIONS])
def test_vmap_of_values_and_of_tangents(name: str, kind: str) -> None:
    def calculate(device: str) -> list[Tensor | None]:
        x, y, s = _x(device), _y(device), _SCALARS[kind](device)

        def both(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return jvp(lambda x, y: _OPERATIONS[name](x, s, y), (x, y), (y.cos(), x.sin()))

        return [*vmap(both)(x, y), vmap(lambda x: _OPERATIONS[name](x, s, y))(x)]

    _same(calculate)


@pytest.mark.parametrize(
    ("name", "kind"), [case for case in _NAMES if case[1] in ("CPU tensor", "device tensor")]
)
def test_derivatives_with_respect_to_a_tensor_of_no_dimensions(name: str, kind: str) -> None:
    operation = _ALL[name]

    def calculate(device: str) -> list[Tensor | None]:
        x, y = _x(device), _y(device)
        s = _SCALARS[kind](device)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(s, s.cos())
            out = forward_ad.unpack_dual(operation(x, dual, y))
        s.requires_grad_()
        out_again = operation(x, s, y.requires_grad_()).sum()
        (gradient,) = torch.autograd.grad(out_again, s, allow_unused=True)
        assert gradient is None or gradient.device == s.device
        return [out.primal, out.tangent, None if gradient is None else gradient.to(device)]

    _same(calculate)


@pytest.mark.parametrize("name", sorted(_OF_ONE_DEVICE))
def test_what_torch_refuses_with_a_tensor_of_the_cpu_is_an_error(name: str) -> None:
    x = _x("simulated").requires_grad_()
    with pytest.raises(RuntimeError, match="same device"):
        _ALL[name](x, torch.tensor(0.75), _y("simulated")).sum().backward()


def test_zeros_without_memory_are_zeros_to_every_reader() -> None:
    zeros = torch._efficientzerotensor((2, 3), device="simulated:1")
    assert torch._is_zerotensor(zeros)
    assert zeros.device == torch.device("simulated", 1)
    assert zeros.tolist() == [[0, 0, 0]] * 2
    assert zeros.t()[1].cpu().tolist() == [0, 0]
    assert zeros.clone().add_(1).tolist() == [[1, 1, 1]] * 2
    ones = torch.ones(2, 3, device="simulated:1")
    assert (zeros + ones).tolist() == ones.tolist()
    assert torch._is_zerotensor(zeros * ones)
    assert ones.copy_(zeros).tolist() == [[0, 0, 0]] * 2
    assert torch.ones(2, 3).copy_(zeros).tolist() == [[0, 0, 0]] * 2
    assert torch.ones(2, 3, device="simulated:0").copy_(zeros).tolist() == [[0, 0, 0]] * 2
    assert torch.cat([ones, zeros]).sum().item() == 0
    assert torch.equal(torch.dot(zeros[0], ones[0]).cpu(), torch.tensor(0.0))


def test_zeros_without_memory_are_not_written() -> None:
    zeros = torch._efficientzerotensor((2, 3), device="simulated")
    with pytest.raises(RuntimeError, match="immutable"):
        zeros.copy_(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="cannot be written"):
        torch.ops.aten._copy_from(torch.ones(2, 3), zeros)
    with pytest.raises(RuntimeError, match="immutable"):
        zeros.add_(1)
    assert zeros.sum().item() == 0


def test_a_graph_replays_tangents() -> None:
    x = torch.ones(3, device="simulated")
    graph = torch.accelerator.Graph()
    with torch.Stream("simulated"), graph, forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x.clone())
        tangent = forward_ad.unpack_dual(dual * 3.0 * dual / 2).tangent
        assert tangent is not None
        tangent = tangent + torch.dot(torch._efficientzerotensor((3,), device=x.device), x)
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        assert tangent.tolist() == [3 * value**2] * 3
