"""``order``: a tensor that becomes available after another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard import arguments, differentiable_jvp
from torchyard_collectives import _simulation
from torchyard_collectives._ops.operation import OPERATORS
from torchyard_collectives._torch_compat import (
    Modes,
    SingleLevelFunction,
    apply_at_one_level,
    below_autograd,
)

__all__ = ["order"]


def order(x: Tensor, *after: Tensor) -> Tensor:
    """Return x, no sooner than some other tensors are computed, in forward and in backward.

    In backward the order is the opposite one: the gradients of ``after`` are zeros, and are there
    only once the gradient of the result is. So a send whose token a loss is ordered after takes
    part in the backward.

    Args:
        x: any tensor.
        *after: tokens of send and barrier, or any other tensors.
    """
    arguments.tensor("order", "x", x)
    for token in arguments.sequence("order", "after", after, arguments.tensor):
        if token.is_meta and not x.is_meta:
            raise arguments.wrong_kind(
                "order", "after", "values", token, "a tensor on the meta device is never computed"
            )
        x = _call(x, token)
    return x


def _call(x: Tensor, after: Tensor) -> Tensor:
    if not torch.compiler.is_compiling() and _simulation.current() is not None:
        return x.clone()
    result: Tensor = OPERATORS["order"](x, after)
    return result


class _Order(SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, modes: Modes | None, x: Tensor, after: Tensor) -> Tensor:
        ctx.save_for_backward(x, after)
        ctx.save_for_forward(x, after)
        with below_autograd(modes):
            result: Tensor = OPERATORS["order"](x, after)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _, after = ctx.saved_tensors
        nothing = _call(torch.zeros_like(after), grads[0]) if ctx.needs_input_grad[2] else None
        return None, grads[0], nothing

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        with differentiable_jvp(ctx.saved_tensors) as saved:
            given = zip(tangents[1:], saved, strict=True)
            return _call(*(torch.zeros_like(like) if t is None else t for t, like in given))


def _autograd(x: Tensor, after: Tensor) -> Tensor:
    result: Tensor = apply_at_one_level(_Order, x, after)
    return result


def _vmap(info: Any, in_dims: Any, x: Tensor, after: Tensor) -> tuple[Tensor, int | None]:
    return _call(x, after), in_dims[0]


OPERATORS.define(
    "order(Tensor x, Tensor after) -> Tensor",
    lambda x, after: x.contiguous().clone(),
    lambda x, after: x.new_empty(x.shape),
    autograd=_autograd,
    vmap=_vmap,
)
