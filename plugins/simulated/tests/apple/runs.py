"""A call with its gradients on a device, and how far two runs are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plugins.mps.tests.operators.cases import Case, leaves

__all__ = ["Run", "run", "worst"]


@dataclass(frozen=True, slots=True)
class Run:
    """Results of a call, and the gradients of their weighted sum; on the CPU."""

    results: list[Tensor]
    gradients: list[Tensor]


def run(case: Case, device: str) -> Run:
    """Run a call on a device."""
    inputs = [one.detach().clone().to(device) for one in case.inputs]
    if not case.gradients:
        return Run([one.cpu() for one in leaves(case.function(*inputs))], [])
    wanted = [one.requires_grad_() for one in inputs if one.is_floating_point()]
    results = leaves(case.function(*inputs))
    total: Any = 0
    for one in results:
        if one.requires_grad:
            weight = torch.linspace(0.5, 1.5, one.numel()).view(one.shape).to(one)
            total = total + (one * weight).sum()
    gradients = torch.autograd.grad(total, wanted)
    return Run([one.detach().cpu() for one in results], [one.cpu() for one in gradients])


def worst(found: Run, expected: Run) -> tuple[float, float]:
    """Return the greatest error of results and of gradients, over each tensor's greatest value."""
    pairs = (found.results, expected.results), (found.gradients, expected.gradients)
    of_results, of_gradients = (
        max((_error(*pair) for pair in zip(*both, strict=True)), default=0.0) for both in pairs
    )
    return of_results, of_gradients


def _error(found: Tensor, expected: Tensor) -> float:
    if not expected.numel():
        return 0.0
    wide = torch.complex128 if expected.is_complex() else torch.float64
    one, other = found.to(wide).nan_to_num(), expected.to(wide).nan_to_num()
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-30))
