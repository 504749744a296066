"""Autograd, forward mode and torch.vmap of a pointwise call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from torchyard import TransformError
from torchyard.torch_compat import any_requires_grad, is_transform_active
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels._vmap import in_front, one_by_one
from torchyard_kernels.pointwise._arguments import Arguments, operand_of
from torchyard_kernels.pointwise._errors import InPlaceGradientError
from torchyard_kernels.pointwise._evaluation import evaluated, takes_elements
from torchyard_programs import pullback, pushforward

__all__ = [
    "batched",
    "differentiate",
    "push_forward",
    "refuse_gradient",
    "refuse_writing",
    "setup_context",
]


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    """Save the tensors and arguments that the derivatives need."""
    tensors, captured, numbers, form, groups, text, _ = inputs
    saved = (*tensors, *(captured or ()))
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.set_materialize_grads(False)
    ctx.split = len(tensors)
    ctx.has_captured = captured is not None
    ctx.plain = (numbers, form, groups, text)
    ctx.differentiable = [_is_differentiable(tensor) for tensor in output]
    ctx.mark_non_differentiable(*[tensor for tensor in output if not _is_differentiable(tensor)])


def differentiate(ctx: Any, slopes: list[Tensor | None]) -> tuple[Any, ...]:
    """Compute each group again by torch's operations, and differentiate these."""
    flags = list(ctx.needs_input_grad[0])
    if ctx.has_captured:
        flags += ctx.needs_input_grad[1]
    function, primals = _function(ctx, flags)
    some = [slope for slope, kept in zip(slopes, ctx.differentiable, strict=True) if kept]
    found: Sequence[Tensor | None] = [None] * len(primals)
    if any(slope is not None for slope in some):
        found = pullback(function, primals, some)
    gradients_of = iter(found)
    grads = [next(gradients_of) if flag else None for flag in flags]
    return grads[: ctx.split], grads[ctx.split :] if ctx.has_captured else None, *[None] * 5


def push_forward(
    ctx: Any, tangents: list[Tensor | None], of_captured: list[Tensor | None] | None, *_: Any
) -> list[Tensor | None]:
    """Compute each group again by torch's operations, for the tangents of its results."""
    moved = [*tangents, *(of_captured or ())]
    function, primals = _function(ctx, [tangent is not None for tangent in moved])
    _, made = pushforward(function, primals, [t for t in moved if t is not None])
    found = iter(made)
    # torch wants tangents laid out as the results are.
    return [next(found).contiguous() if kept else None for kept in ctx.differentiable]


def _function(
    ctx: Any, flags: Sequence[bool]
) -> tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]:
    """Return the results that can be differentiated as a function of flagged tensors, and those."""
    saved = ctx.saved_tensors
    numbers, form, groups, text = ctx.plain

    def function(*some: Tensor) -> tuple[Tensor, ...]:
        given = iter(some)
        leaves = [
            next(given) if flag else tensor for tensor, flag in zip(saved, flags, strict=True)
        ]
        tensors, captured = leaves[: ctx.split], leaves[ctx.split :]
        items = Arguments(tensors, numbers or [], form, groups).items()
        traits = tuple(operand_of(tensor) for tensor in captured)
        found = []
        for group in range(groups):
            parts = [item[group] for item in items]
            inputs = tuple(operand_of(part) for part in parts)
            found.append(evaluated(text, inputs, traits, parts, captured))
        flat = [result for column in zip(*found, strict=True) for result in column]
        return tuple([one for one, kept in zip(flat, ctx.differentiable, strict=True) if kept])

    return function, [tensor for tensor, flag in zip(saved, flags, strict=True) if flag]


def batched(
    info: Any,
    dims: tuple[Any, ...],
    tensors: list[Tensor],
    captured: list[Tensor] | None,
    numbers: list[float] | None,
    form: str,
    groups: int,
    text: str,
    use: str,
) -> tuple[list[Tensor], list[int]]:
    """Compute groups with one more dimension, as torch.library.register_vmap takes it."""
    size = info.batch_size
    of_tensors, of_captured = dims[0], dims[1] or []
    every = [*tensors, *(captured or ())]
    where = [*of_tensors, *of_captured]
    ranks = [tensor.dim() - (dim is not None) for tensor, dim in zip(every, where, strict=True)]
    rest = (numbers, form, groups, text, use)
    if not _may_widen(every, where, ranks, captured, of_captured, form, text):
        found, at = one_by_one(OPERATORS["pointwise"], size, dims, (tensors, captured, *rest))
        return found, at
    rank = max(ranks)
    wide = [
        tensor if dim is None else _in_front_of(tensor.movedim(dim, 0), rank)
        for tensor, dim in zip(every, where, strict=True)
    ]
    split = len(tensors)
    some = None if captured is None else wide[split:]
    results = OPERATORS["pointwise"](wide[:split], some, *rest)
    shapes = _shapes(tensors, of_tensors, captured or [], of_captured, numbers, form, groups)
    found = []
    for number, result in enumerate(results):
        mapped, shape = shapes[number % groups]
        found.append(
            result.reshape(size, *shape) if mapped else in_front(result, None, size).contiguous()
        )
    return found, [0] * len(found)


def _may_widen(
    every: Sequence[Tensor],
    where: Sequence[int | None],
    ranks: Sequence[int],
    captured: Sequence[Tensor] | None,
    of_captured: Sequence[int | None],
    form: str,
    text: str,
) -> bool:
    """Return whether one more dimension changes neither dtypes nor what a program looks up."""
    traits = tuple(operand_of(tensor) for tensor in captured or ())
    mapped = any(dim is not None for dim in of_captured)
    if mapped and not takes_elements(text, len(form), traits):
        return False
    # A tensor without dimensions gives way to others where dtypes are promoted.
    scalars = any(dim is not None and rank == 0 for dim, rank in zip(where, ranks, strict=True))
    return not scalars or len({tensor.dtype for tensor in every}) == 1


def _in_front_of(tensor: Tensor, rank: int) -> Tensor:
    """Return [V, ...] as [V, 1, ..., 1, ...], V before ``rank`` dimensions."""
    return tensor.reshape(tensor.shape[0], *[1] * (rank + 1 - tensor.dim()), *tensor.shape[1:])


def _shapes(
    tensors: Sequence[Tensor],
    of_tensors: Sequence[int | None],
    captured: Sequence[Tensor],
    of_captured: Sequence[int | None],
    numbers: list[float] | None,
    form: str,
    groups: int,
) -> list[tuple[bool, torch.Size]]:
    """Return of each group whether it is mapped over, and the shape of one of its results."""
    one = [
        tensor if dim is None else tensor.select(dim, 0)
        for tensor, dim in zip((*tensors, *captured), (*of_tensors, *of_captured), strict=True)
    ]
    places = Arguments(list(range(len(tensors))), numbers or [], form, groups).items()  # type: ignore[arg-type]
    kinds = [letter in "Tt" for letter in form]
    found = []
    for group in range(groups):
        at = [item[group] for item, is_tensor in zip(places, kinds, strict=True) if is_tensor]
        shapes = [one[place].shape for place in at] + [item.shape for item in one[len(tensors) :]]
        mapped = any(of_tensors[place] is not None for place in at) or any(
            dim is not None for dim in of_captured
        )
        found.append((mapped, torch.broadcast_shapes(*shapes)))  # type: ignore[no-untyped-call]
    return found


def refuse_writing(op: Any, *args: Any) -> NoReturn:
    """Refuse a call that writes to its tensors, where it is differentiated or transformed."""
    if is_transform_active():
        raise TransformError(
            "foreach_map_ under a transform of torch.func: expected tensors that nothing "
            "transforms, since what is written to is lost for it; use foreach_map"
        )
    if torch.is_grad_enabled() and any_requires_grad(*args):
        refuse_gradient()
    raise TransformError(
        "foreach_map_ under forward-mode differentiation (jvp): expected tensors without tangents, "
        "since what is written to would keep its own; use foreach_map"
    )


def refuse_gradient() -> NoReturn:
    """Raise InPlaceGradientError."""
    raise InPlaceGradientError(
        "foreach_map_: expected tensors whose gradients are not recorded, since what is written "
        "to is lost for the backward; call it under torch.no_grad(), or use foreach_map"
    )


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
