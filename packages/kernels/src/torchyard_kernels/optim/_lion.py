"""Lion."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.optim._options import (
    checked_flags,
    checked_numbers,
    checked_pair,
    checked_params,
    checked_rate,
)
from torchyard_kernels.optim._steps import check_gradient, evaluated_closure
from torchyard_kernels.pointwise._prepared import PreparedMap

__all__ = ["Lion"]


class Lion(torch.optim.Optimizer):
    """Lion with one fused call per group and step.

    With gradient g, elementwise::

        p = (1 - lr weight_decay) p - lr sign(beta1 m + (1 - beta1) g)
        m = beta2 m + (1 - beta2) g

    The state is ``exp_avg``, named as torch's optimisers name theirs; torch has no Lion.
    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675,
    algorithm 2.

    Args:
        params: as torch's optimisers take them.
        lr: at least 0.
        betas: each within [0, 1).
        weight_decay: at least 0; decoupled.
        maximize: whether to ascend.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        of = "Lion"
        lr, betas = checked_rate(of, lr), checked_pair(of, betas)
        (weight_decay,) = checked_numbers(of, weight_decay=weight_decay)
        (maximize,) = checked_flags(of, maximize=maximize)
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(checked_params(of, params), defaults)

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
            if not params:
                continue
            moments = []
            for param in params:
                state = self.state[param]
                if not state:
                    check_gradient("Lion", param.grad)
                    state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
                moments.append(state["exp_avg"])
            rate = float(group["lr"])
            first, second = (float(beta) for beta in group["betas"])
            _map(group["maximize"])(
                params,
                moments,
                [param.grad for param in params],
                1 - rate * group["weight_decay"],
                first,
                1 - first,
                second,
                1 - second,
                -rate,
            )
        return loss


@lru_cache(maxsize=2)
def _map(maximize: bool) -> PreparedMap:
    def lion(
        p: Any,
        m: Any,
        g: Any,
        decay: Any,
        beta1: Any,
        rate1: Any,
        beta2: Any,
        rate2: Any,
        size: Any,
    ) -> tuple[Any, Any]:
        g = -g if maximize else g
        direction = torch.sign(m * beta1 + g * rate1)
        return p * decay + direction * size, m * beta2 + g * rate2

    return PreparedMap(lion, 9)
