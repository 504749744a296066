"""Derivatives of functions made of torch's operations, for rules of ops that are made of kernels.

Both may be differentiated and transformed again: all that they do is torch's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import is_batch_of_gradients

__all__ = ["is_transformed", "pullback", "pushforward"]

_transforming: Final = torch._C._are_functorch_transforms_active
# Its types leave out what the pullback is called with.
_vjp: Final[Any] = torch.func.vjp


def is_transformed() -> bool:
    """Return whether a transform of torch.func, or forward mode, takes part in a call."""
    return _transforming() or torch.autograd.forward_ad._current_level >= 0


def pullback(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    slopes: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """Return the gradients of a function's arguments from those of its results.

    Args:
        function: of tensors to tensors, all of floating point.
        primals: its arguments.
        slopes: the gradients of its results, None for zeros.
    """
    if any(slope is not None and is_batch_of_gradients(slope) for slope in slopes):
        return _pullback_of_batches(function, primals, slopes)
    values, pull = _vjp(function, *primals)
    found: tuple[Tensor, ...] = pull(_filled(values, slopes))
    return found


def pushforward(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return a function's results and their tangents from those of its arguments.

    By two reverse passes: a pullback is linear in its argument, so its own pullback is the
    tangent. Forward mode cannot be used for it: torch allows one level of dual numbers, and the
    caller may be inside of one.

    Args:
        function, primals: as of :func:`pullback`.
        tangents: those of the arguments.
    """
    if any(is_batch_of_gradients(tangent) for tangent in tangents):
        return _pushforward_of_batches(function, primals, tangents)
    values, pull = _vjp(function, *primals)
    _, push = _vjp(pull, tuple([torch.zeros_like(value) for value in values]))
    (found,) = push(tuple(tangents))
    return values, found


def _filled(values: Sequence[Tensor], slopes: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple(
        [
            torch.zeros_like(value) if slope is None else slope.to(value.dtype)
            for value, slope in zip(values, slopes, strict=True)
        ]
    )


def _pullback_of_batches(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    slopes: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        leaves = [primal.detach().requires_grad_() for primal in primals]
        pairs = [
            (value, slope)
            for value, slope in zip(function(*leaves), slopes, strict=True)
            if slope is not None and value.requires_grad
        ]
    return _gradients(pairs, leaves)


def _pushforward_of_batches(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    with torch.enable_grad():
        leaves = [primal.detach().requires_grad_() for primal in primals]
        values = function(*leaves)
        slopes = [torch.zeros_like(value, requires_grad=True) for value in values]
        pulled = torch.autograd.grad(
            values, leaves, slopes, create_graph=True, allow_unused=True, materialize_grads=True
        )
        pairs = [
            (part, tangent)
            for part, tangent in zip(pulled, tangents, strict=True)
            if part.requires_grad
        ]
    return tuple([value.detach() for value in values]), _gradients(pairs, slopes)


def _gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], leaves: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    if not pairs:
        return tuple([torch.zeros_like(leaf) for leaf in leaves])
    found: tuple[Tensor, ...] = torch.autograd.grad(
        [output for output, _ in pairs],
        leaves,
        [slope for _, slope in pairs],
        allow_unused=True,
        materialize_grads=True,
    )
    return found
