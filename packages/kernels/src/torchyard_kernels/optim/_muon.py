"""Muon."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.optim._options import (
    check_tensors,
    checked_flags,
    checked_numbers,
    checked_params,
    checked_rate,
)
from torchyard_kernels.optim._steps import check_gradient, evaluated_closure
from torchyard_kernels.pointwise._prepared import PreparedMap

__all__ = ["Muon"]

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Muon):
    """torch.optim.Muon with its pointwise work in two fused calls per group and step.

    With gradient g of a matrix [A, B]::

        m = m + (1 - momentum) (g - m)
        u = g + momentum (m - g)          with nesterov, else m; in bfloat16
        o = u made orthogonal by Newton-Schulz steps, in bfloat16, by torch's matrix products
        p = (1 - lr weight_decay) p - lr adjust(A, B) o

    Arguments and state are torch's.
    Source: Keller Jordan, Muon (https://kellerjordan.github.io/posts/muon/); Liu et al., arXiv
    2502.16982, for ``match_rms_adamw``; torch.optim (2.13).

    Args:
        params: matrices, as torch's.
        lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn: as
            torch's; lr may be a tensor, whose value is taken.

    Raises:
        ValueError: an argument is out of its range, or a parameter is no matrix.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        of = "Muon"
        weight_decay, eps = checked_numbers(of, weight_decay=weight_decay, eps=eps)
        momentum = arguments.number(of, "momentum", momentum, least=0)
        (nesterov,) = checked_flags(of, nesterov=nesterov)
        first, second, third = arguments.sequence(
            of, "ns_coefficients", ns_coefficients, arguments.number, expected="numbers", length=3
        )
        ns_coefficients = first, second, third
        ns_steps = arguments.integer(of, "ns_steps", ns_steps, least=0, most=99)
        adjust_lr_fn = arguments.choice(
            of, "adjust_lr_fn", adjust_lr_fn, (None, "original", "match_rms_adamw")
        )
        super().__init__(
            checked_params(of, params),
            float(checked_rate(of, lr)),
            weight_decay,
            momentum,
            nesterov,
            ns_coefficients,
            eps,
            ns_steps,
            adjust_lr_fn,
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient.

        Args:
            closure: computes the loss again, with its gradients.

        Returns:
            The closure's loss; None without one.

        Raises:
            StepOptionError: a gradient is sparse or complex.
        """
        loss = evaluated_closure(closure)
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if params:
                # torch's own operators, which move some of it, look at no storage.
                check_tensors("Muon", params, self.state)
                self._move(group, params)
        return loss

    def _move(self, group: dict[str, Any], params: Sequence[Tensor]) -> None:
        moments = []
        gradients: list[Any] = [param.grad for param in params]
        for param, gradient in zip(params, gradients, strict=True):
            state = self.state[param]
            if "momentum_buffer" not in state:
                check_gradient("Muon", gradient)
                state["momentum_buffer"] = torch.zeros_like(
                    gradient, memory_format=torch.preserve_format
                )
            moments.append(state["momentum_buffer"])
        directions = [torch.empty_like(g, dtype=torch.bfloat16) for g in gradients]
        _averaged(group["nesterov"])(
            *(moments, gradients, 1 - group["momentum"], group["momentum"]),
            out=[moments, directions],
        )
        rate = float(group["lr"])
        updates = [
            _orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
            for direction in directions
        ]
        sizes = [-rate * _adjusted(group["adjust_lr_fn"], *param.shape) for param in params]
        _moved()(params, updates, 1 - rate * group["weight_decay"], sizes)


def _orthogonal(
    direction: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """Return the matrix with its singular values brought near 1; bfloat16 as given."""
    a, b, c = coefficients
    tall = direction.shape[0] > direction.shape[1]
    x = direction.T if tall else direction
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _adjusted(rule: str | None, rows: int, columns: int) -> float:
    """Return what the learning rate is multiplied by."""
    if rule == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1.0, rows / columns))


@lru_cache(maxsize=2)
def _averaged(nesterov: bool) -> PreparedMap:
    def averaged(m: Any, g: Any, weight: Any, momentum: Any) -> tuple[Any, Any]:
        m = torch.lerp(m, g, weight)
        u = torch.lerp(g, m, momentum) if nesterov else m
        return m, u.to(torch.bfloat16)

    return PreparedMap(averaged, 4)


@lru_cache(maxsize=1)
def _moved() -> PreparedMap:
    def moved(p: Any, update: Any, decay: Any, size: Any) -> Any:
        return p * decay + update * size

    return PreparedMap(moved, 4)
