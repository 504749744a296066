"""Steps of optimisers in Metal are as near to torch's in float64 as torch's own in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.pointwise.calls import call_of, call_of_text, normal
from torchyard_kernels.optim import AdamW
from torchyard_kernels.pointwise import _prepared
from torchyard_mps.pointwise import compute

_SHAPES = [(7, 9), (300,), (16, 3, 1)]
_STEPS = 3


def _stepped(
    make: Callable[[list[Tensor]], Any], dtype: torch.dtype, *, transposed: bool = False
) -> list[Tensor]:
    """Return parameters after some steps with the same gradients in each dtype."""
    params = [one.to(dtype) for one in normal(_SHAPES)]
    if transposed:
        params[0] = params[0].t().contiguous().t()
    optimizer = make(params)
    for step in range(_STEPS):
        for param, gradient in zip(params, normal(_SHAPES, seed=step + 1), strict=True):
            param.grad = gradient.to(dtype)
        optimizer.step()
    return params


def _excess(found: list[Tensor], make: Callable[[list[Tensor]], Any]) -> float:
    """Return the greatest error over its bound: twice that of torch in float32, and a rounding."""
    naive, exact = _stepped(make, torch.float32), _stepped(make, torch.float64)
    worst = 0.0
    for got, rough, right in zip(found, naive, exact, strict=True):
        bound = 2 * (rough.double() - right).abs().max()
        bound = bound + torch.finfo(torch.float32).eps * right.abs().max()
        worst = max(worst, float((got.double() - right).abs().max() / bound))
    return worst


def _written(
    text: str, captured: tuple[Tensor, ...], lists: Sequence[Any], out: Sequence[Sequence[Tensor]]
) -> None:
    """Do what an optimiser's call of foreach_map_ does, in Metal."""
    groups = len(lists[0])
    given = [list(item) if isinstance(item, list) else [item] * groups for item in lists]
    with emulated():
        compute(call_of_text(text, given, tuple(out), captured))


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(amsgrad: bool, decay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": decay, "amsgrad": amsgrad}
    monkeypatch.setattr(_prepared, "write", _written)
    found = _stepped(lambda params: AdamW(params, **options), torch.float32, transposed=True)
    # Without decay AdamW is Adam.
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    assert _excess(found, lambda params: kind(params, foreach=False, **options)) <= 1


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_with_momentum(nesterov: bool) -> None:
    class Sgd:
        def __init__(self, params: list[Tensor]) -> None:
            self.params = params
            self.moments = [torch.zeros_like(param) for param in params]

        def step(self) -> None:
            def moved(p: Any, v: Any, g: Any, rate: Any, momentum: Any) -> tuple[Any, Any]:
                v = v * momentum + g
                return p - rate * (g + momentum * v if nesterov else v), v

            gradients = [param.grad for param in self.params]
            numbers = [[number] * len(_SHAPES) for number in (0.1, 0.9)]
            lists = (self.params, self.moments, gradients, *numbers)
            with emulated():
                compute(call_of(moved, *lists, out=(self.params, self.moments)))

    found = _stepped(Sgd, torch.float32)
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov, "foreach": False}
    assert _excess(found, lambda params: torch.optim.SGD(params, **options)) <= 1
