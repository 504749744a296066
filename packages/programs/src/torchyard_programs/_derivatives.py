"""Derivatives of functions of torch operations, for the autograd formulas of ops.

Both derivatives consist of torch operations, so that they can be differentiated and transformed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments, is_batch_of_gradients
from torchyard.torch_compat import forward_ad_level, is_transform_active

__all__ = ["is_transformed", "pullback", "pushforward"]

# Its annotations lack the arguments of the pullback.
_vjp: Final[Any] = torch.func.vjp


def is_transformed() -> bool:
    """Return whether a transform of torch.func, or forward mode, is active."""
    return is_transform_active() or forward_ad_level() >= 0


def pullback(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    slopes: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """Return the gradients of a function's arguments from those of its results.

    Args:
        function: maps tensors to a tuple of tensors, all of floating point.
        primals: its arguments, at least one.
        slopes: the gradients of its results, None for zeros.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
    """
    arguments.function("pullback", "function", function)
    arguments.sequence("pullback", "primals", primals, _tensor, least=1)
    arguments.sequence("pullback", "slopes", slopes, _tensor_or_none)
    if any(slope is not None and is_batch_of_gradients(slope) for slope in slopes):
        return _pullback_of_batches(function, primals, slopes)
    values, pull = _vjp(function, *primals)
    _check_values("pullback", values)
    _check_alike("pullback", "slopes", slopes, values)
    found: tuple[Tensor, ...] = pull(_filled(values, slopes))
    return found


def pushforward(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return a function's results and their tangents from those of its arguments.

    Computed by two reverse passes: a pullback is linear in its argument, so its own pullback is
    the tangent. Forward mode would not do: torch allows one level of dual numbers, and the caller
    may be inside of it.

    Args:
        function, primals: as for :func:`pullback`.
        tangents: the tangents of the arguments.

    Raises:
        TypeError, ValueError: an argument does not fit; the message names it.
    """
    arguments.function("pushforward", "function", function)
    arguments.sequence("pushforward", "primals", primals, _tensor, least=1)
    arguments.sequence("pushforward", "tangents", tangents, _tensor, length=len(primals))
    if any(is_batch_of_gradients(tangent) for tangent in tangents):
        return _pushforward_of_batches(function, primals, tangents)
    _check_alike("pushforward", "tangents", tangents, primals)
    values, pull = _vjp(function, *primals)
    _check_values("pushforward", values)
    _, push = _vjp(pull, tuple([torch.zeros_like(value) for value in values]))
    (found,) = push(tuple(tangents))
    return values, found


def _tensor(of: str, name: str, value: object) -> Tensor:
    return arguments.instance(of, name, value, Tensor, "a tensor")


def _tensor_or_none(of: str, name: str, value: object) -> Tensor | None:
    if value is None:
        return None
    return arguments.instance(of, name, value, Tensor, "a tensor, or None for zeros")


def _check_values(of: str, values: object) -> None:
    """Raise TypeError where a function does not return a tuple of tensors."""
    if not isinstance(values, tuple):
        raise arguments.wrong_kind(
            of, "function", "a function that returns a tuple of tensors", values
        )


def _check_count(
    of: str, name: str, given: Sequence[Tensor | None], values: Sequence[Tensor]
) -> None:
    if len(given) != len(values):
        raise arguments.wrong_value(of, name, f"one for each of {len(values)}", f"{len(given)}")


def _check_alike(
    of: str, name: str, given: Sequence[Tensor | None], values: Sequence[Tensor]
) -> None:
    """Raise ValueError unless there is one for each value, of its shape."""
    _check_count(of, name, given, values)
    for index, (one, value) in enumerate(zip(given, values, strict=True)):
        if one is not None and one.shape != value.shape:
            raise arguments.wrong_value(
                of, f"{name}[{index}]", f"shape {list(value.shape)}", f"{list(one.shape)}"
            )


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
        values = function(*leaves)
        _check_values("pullback", values)
        _check_count("pullback", "slopes", slopes, values)
        pairs = [
            (value, slope)
            for value, slope in zip(values, slopes, strict=True)
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
        _check_values("pushforward", values)
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
