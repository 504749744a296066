"""Adafactor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels._torch_compat import norms_of
from torchyard_kernels.optim._options import (
    check_tensors,
    check_without_effect,
    checked_flags,
    checked_numbers,
    checked_params,
    checked_rate,
)
from torchyard_kernels.optim._steps import advanced, check_gradient, evaluated_closure
from torchyard_kernels.pointwise._prepared import PreparedMap

__all__ = ["Adafactor"]

_State = dict[str, Tensor]


class Adafactor(torch.optim.Adafactor):
    """torch.optim.Adafactor with its pointwise work in a few fused calls per group and step.

    With gradient g and step t, R and C the last two dimensions of a matrix, w = t^beta2_decay, and
    rms(x) the root of the mean square::

        rho   = min(lr, 1 / sqrt(t))
        alpha = max(eps2, rms(p)) rho
        r = r + w (mean_C(g^2) - r);   c = c + w (mean_R(g^2) - c)       of matrices
        v = r c / max(mean_R(r), eps1)
        v = v + w (g^2 - v)                                              of vectors
        u = g / sqrt(max(v, eps1^2))
        p = (1 - lr weight_decay) p - alpha u / max(1, rms(u) / d)

    Means and norms are torch's own operations. Arguments and state are torch's.
    Source: Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5, as torch.optim (2.13) has it.

    Args:
        params: as torch's.
        lr, beta2_decay, eps, d, weight_decay, maximize: as torch's; lr may be a tensor.
        foreach: as torch's, without effect: a step is a few fused calls in any case.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        of = "Adafactor"
        check_without_effect(of, foreach=foreach)
        lr = checked_rate(of, lr)
        beta2_decay = arguments.number(of, "beta2_decay", beta2_decay, most=0)
        first, second = arguments.sequence(of, "eps", eps, _epsilon, expected="numbers", length=2)
        if second is None:
            raise arguments.wrong_kind(of, "eps[1]", "a number of at least 0", None)
        d = arguments.number(of, "d", d, least=1)
        (weight_decay,) = checked_numbers(of, weight_decay=weight_decay)
        (maximize,) = checked_flags(of, maximize=maximize)
        eps = first, second
        super().__init__(
            checked_params(of, params), lr, beta2_decay, eps, d, weight_decay, maximize=maximize
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
            # torch's own operators, which move some of it, look at no storage.
            check_tensors("Adafactor", params, self.state)
            # Matrices have another state than vectors; eps1 may depend on the dtype.
            kinds = sorted({(str(p.dtype), str(p.device), p.dim() > 1) for p in params})
            for kind in kinds:
                own = [p for p in params if (str(p.dtype), str(p.device), p.dim() > 1) == kind]
                self._move(group, own, matrices=kind[2])
        return loss

    def _move(self, group: dict[str, Any], params: Sequence[Tensor], *, matrices: bool) -> None:
        gradients = [_gradient(param) for param in params]
        states: list[_State] = [
            self.state[param] or _begun(self.state[param], gradient)
            for param, gradient in zip(params, gradients, strict=True)
        ]
        counts = advanced([state["step"] for state in states])
        least, floor = group["eps"]
        least = torch.finfo(params[0].dtype).eps if least is None else float(least)
        rate = float(group["lr"])
        weights = [count ** group["beta2_decay"] for count in counts]
        sizes = [
            -max(floor, size) * min(rate, count**-0.5)
            for size, count in zip(_root_mean_squares(params), counts, strict=True)
        ]
        update = _matrices if matrices else _vectors
        updates = update(gradients, states, weights, least, group["maximize"])
        factors = [
            size / max(1.0, length / group["d"])
            for size, length in zip(sizes, _root_mean_squares(updates), strict=True)
        ]
        _moved()(params, updates, 1 - rate * group["weight_decay"], factors)


def _gradient(param: Tensor) -> Tensor:
    gradient = param.grad
    assert gradient is not None
    return gradient


def _begun(state: _State, gradient: Tensor) -> _State:
    """Fill a parameter's state as torch does."""
    check_gradient("Adafactor", gradient)
    state["step"] = torch.tensor(0.0, dtype=torch.get_default_dtype())
    if gradient.dim() > 1:
        *outer, rows, columns = gradient.shape
        state["row_var"] = gradient.new_zeros((*outer, rows, 1))
        state["col_var"] = gradient.new_zeros((*outer, 1, columns))
    else:
        state["variance"] = torch.zeros_like(gradient, memory_format=torch.preserve_format)
    return state


def _root_mean_squares(tensors: Sequence[Tensor]) -> list[float]:
    norms = torch.stack(norms_of(tensors)).tolist()
    return [
        norm / max(tensor.numel(), 1) ** 0.5 for norm, tensor in zip(norms, tensors, strict=True)
    ]


def _epsilon(of: str, name: str, value: object) -> float | None:
    return None if value is None else arguments.number(of, name, value, least=0)


def _matrices(
    gradients: Sequence[Tensor],
    states: Sequence[_State],
    weights: Sequence[float],
    least: float,
    maximize: bool,
) -> list[Tensor]:
    rows = [state["row_var"] for state in states]
    columns = [state["col_var"] for state in states]
    for variances, dim in ((rows, -1), (columns, -2)):
        norms = [torch.linalg.vector_norm(g, dim=dim, keepdim=True) for g in gradients]
        _averaged()(variances, norms, [1 / g.size(dim) for g in gradients], weights)
    means = [row.mean(dim=-2, keepdim=True) for row in rows]
    updates = [torch.empty_like(g) for g in gradients]
    _factored(maximize)(gradients, rows, columns, means, least, least * least, out=[updates])
    return updates


def _vectors(
    gradients: Sequence[Tensor],
    states: Sequence[_State],
    weights: Sequence[float],
    least: float,
    maximize: bool,
) -> list[Tensor]:
    variances = [state["variance"] for state in states]
    updates = [torch.empty_like(g) for g in gradients]
    _plain(maximize)(gradients, variances, weights, least * least, out=[updates, variances])
    return updates


@cache
def _averaged() -> PreparedMap:
    def averaged(variance: Any, norm: Any, share: Any, weight: Any) -> Any:
        return (norm * norm * share - variance) * weight + variance

    return PreparedMap(averaged, 4)


@cache
def _factored(maximize: bool) -> PreparedMap:
    def factored(g: Any, row: Any, column: Any, mean: Any, least: Any, square: Any) -> Any:
        g = -g if maximize else g
        variance = row * column / torch.clamp(mean, min=least)
        return g * torch.rsqrt(torch.clamp(variance, min=square))

    return PreparedMap(factored, 6)


@cache
def _plain(maximize: bool) -> PreparedMap:
    def plain(g: Any, variance: Any, weight: Any, square: Any) -> tuple[Any, Any]:
        variance = (g * g - variance) * weight + variance
        g = -g if maximize else g
        return g * torch.rsqrt(torch.clamp(variance, min=square)), variance

    return PreparedMap(plain, 4)


@cache
def _moved() -> PreparedMap:
    def moved(p: Any, update: Any, decay: Any, factor: Any) -> Any:
        return p * decay + update * factor

    return PreparedMap(moved, 4)
