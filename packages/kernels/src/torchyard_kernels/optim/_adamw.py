"""AdamW."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.optim._options import (
    check_without_effect,
    checked_flags,
    checked_numbers,
    checked_pair,
    checked_params,
    checked_rate,
)
from torchyard_kernels.optim._steps import (
    advanced,
    check_gradient,
    evaluated_closure,
    refuse_options,
)
from torchyard_kernels.pointwise._prepared import PreparedMap

__all__ = ["AdamW"]


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW with one fused call per group and step.

    With gradient g, step t, and all else elementwise::

        m = m + (1 - beta1) (g - m)
        v = beta2 v + (1 - beta2) g^2
        p = (1 - lr weight_decay) p - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)

    and with amsgrad the greatest v so far in place of v. Arguments and state are torch's.
    Source: Loshchilov and Hutter, arXiv 1711.05101, algorithm 2; Reddi et al., arXiv 1904.09237.

    Args:
        params: as torch's.
        lr, betas, eps, weight_decay, amsgrad, maximize: as torch's; lr may be a tensor.
        foreach, fused: as torch's, without effect: a step is one fused call in any case.
        capturable, differentiable: False.

    Raises:
        ValueError: an argument is out of its range, or foreach and fused are both True.
        StepOptionError: ``capturable`` or ``differentiable`` is True.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        of = "AdamW"
        check_without_effect(of, foreach=foreach, fused=fused)
        capturable, differentiable = checked_flags(
            of, capturable=capturable, differentiable=differentiable
        )
        options = {"capturable": capturable, "differentiable": differentiable}
        refuse_options(of, options, *options)
        lr, betas = checked_rate(of, lr), checked_pair(of, betas)
        eps, weight_decay = checked_numbers(of, eps=eps, weight_decay=weight_decay)
        amsgrad, maximize = checked_flags(of, amsgrad=amsgrad, maximize=maximize)
        super().__init__(
            checked_params(of, params), lr, betas, eps, weight_decay, amsgrad, maximize=maximize
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient.

        Args:
            closure: computes the loss again, with its gradients.

        Returns:
            The closure's loss; None without one.

        Raises:
            StepOptionError: a group, from a state of torch's, has ``capturable`` or
                ``differentiable``; or a gradient is sparse or complex.
        """
        loss = evaluated_closure(closure)
        for group in self.param_groups:
            self._move(group)
        return loss

    def _move(self, group: dict[str, Any]) -> None:
        refuse_options("AdamW", group, "capturable", "differentiable")
        amsgrad = group["amsgrad"]
        params: list[Tensor] = []
        gradients: list[Tensor] = []
        states: list[dict[str, Tensor]] = []
        for param in group["params"]:
            gradient = param.grad
            if gradient is not None:
                params.append(param)
                gradients.append(gradient)
                state = self.state[param]
                states.append(state or self._begun(param, gradient, state, amsgrad))
        if not params:
            return
        counts = advanced([state["step"] for state in states])
        first, second = (float(beta) for beta in group["betas"])
        rate = float(group["lr"])
        # One number for all where all have made as many steps.
        if counts.count(counts[0]) == len(counts):
            size: Any = -rate / (1 - first ** counts[0])
            root: Any = (1 - second ** counts[0]) ** -0.5
        else:
            size = [-rate / (1 - first**count) for count in counts]
            root = [(1 - second**count) ** -0.5 for count in counts]
        lists = [params]
        lists += [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")]
        if amsgrad:
            lists.append([state["max_exp_avg_sq"] for state in states])
        _map(amsgrad, group["maximize"])(
            *lists,
            gradients,
            1 - rate * group["weight_decay"],
            1 - first,
            second,
            1 - second,
            root,
            float(group["eps"]),
            size,
        )

    def _begun(
        self, param: Tensor, gradient: Tensor, state: dict[str, Tensor], amsgrad: bool
    ) -> dict[str, Tensor]:
        """Fill a parameter's state as torch does."""
        check_gradient("AdamW", gradient)
        state["step"] = torch.tensor(0.0, dtype=torch.get_default_dtype())
        names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ()))
        for name in names:
            state[name] = torch.zeros_like(param, memory_format=torch.preserve_format)
        return state


@lru_cache(maxsize=4)
def _map(amsgrad: bool, maximize: bool) -> PreparedMap:
    def moments(m: Any, v: Any, g: Any, rate1: Any, beta2: Any, rate2: Any) -> tuple[Any, Any]:
        g = -g if maximize else g
        return (g - m) * rate1 + m, v * beta2 + g * g * rate2

    def moved(p: Any, m: Any, v: Any, decay: Any, root: Any, eps: Any, size: Any) -> Any:
        return p * decay + m / (torch.sqrt(v) * root + eps) * size

    def adamw(
        p: Any, m: Any, v: Any, g: Any, decay: Any, rate1: Any, beta2: Any, rate2: Any, root: Any,
        eps: Any, size: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        m, v = moments(m, v, g, rate1, beta2, rate2)
        return moved(p, m, v, decay, root, eps, size), m, v

    def adamw_amsgrad(
        p: Any, m: Any, v: Any, most: Any, g: Any, decay: Any, rate1: Any, beta2: Any, rate2: Any,
        root: Any, eps: Any, size: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        m, v = moments(m, v, g, rate1, beta2, rate2)
        most = torch.maximum(most, v)
        return moved(p, m, most, decay, root, eps, size), m, v, most

    return PreparedMap(adamw_amsgrad, 12) if amsgrad else PreparedMap(adamw, 11)
