"""What autograd, forward mode and torch.vmap make of recurrent layers and of their gradients.

The first gradient is a kernel's. Tangents, and derivatives of gradients, are those of the equations
in torch's operations, one step after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._operators import OPERATORS
from torchyard_kernels._vmap import in_front, one_by_one
from torchyard_kernels.recurrent._encoding import call_of
from torchyard_kernels.recurrent.implementations.steps import steps_forward, visible
from torchyard_programs import pullback, pushforward

__all__ = [
    "batched",
    "batched_gradients",
    "differentiate",
    "differentiate_gradients",
    "push_forward",
    "push_gradients_forward",
    "setup_context",
    "setup_gradients",
]


class _Common:
    """The arguments that both ops begin with.

    Attributes:
        tensors: input, hidden, cell where there is one, and the weights: what has derivatives.
    """

    def __init__(self, common: Sequence[Any]) -> None:
        given, hidden, cell, weights, self.lengths, *self.plain = common
        self.has_cell = cell is not None
        first = (given, hidden) if cell is None else (given, hidden, cell)
        self.tensors: tuple[Tensor, ...] = (*first, *weights)

    def arguments(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Return them with other tensors."""
        given, hidden, *rest = tensors
        cell = rest.pop(0) if self.has_cell else None
        return [given, hidden, cell, rest, self.lengths, *self.plain]

    def nested(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """Return what was found for each of the tensors as the op's first arguments."""
        given, hidden, cell, weights, *_ = self.arguments(found)
        return given, hidden, cell, weights, *[None] * (1 + len(self.plain))

    def outputs(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return output, hidden and cell in torch's operations."""
        call = call_of(self.arguments(tensors), reserve=False)
        there = visible(call)
        if there is not None:
            # The input after a sequence's end is multiplied too: a NaN would reach gradients.
            call = replace(call, input=torch.where(there, call.input, 0))
        result = steps_forward(call)
        if result.cell is None:
            return result.output, result.hidden
        return result.output, result.hidden, result.cell


def _save(ctx: Any, common: _Common, *others: Tensor) -> None:
    lengths = () if common.lengths is None else (common.lengths,)
    saved = (*others, *lengths, *common.tensors)
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.set_materialize_grads(False)
    ctx.has_cell, ctx.has_lengths = common.has_cell, bool(lengths)
    ctx.plain = common.plain


def _saved(ctx: Any, others: int) -> tuple[tuple[Tensor, ...], _Common]:
    saved = list(ctx.saved_tensors)
    found, rest = tuple(saved[:others]), saved[others:]
    lengths = rest.pop(0) if ctx.has_lengths else None
    given, hidden, *weights = rest
    cell = weights.pop(0) if ctx.has_cell else None
    return found, _Common((given, hidden, cell, weights, lengths, *ctx.plain))


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Save what the derivatives of the forward op need."""
    *common, ctx.recorded, _ = inputs
    made = _Common(common)
    ctx.mark_non_differentiable(*output[3 if made.has_cell else 2 :])
    _save(ctx, made, output[3])


def differentiate(
    ctx: Any,
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    _: Any,
) -> tuple[Any, ...]:
    """Return the gradients of the forward op's arguments, by the other op."""
    if not ctx.recorded:
        raise RuntimeError(
            "recurrent: gradients were asked for, and the call was made with reserve=False; call "
            "torchyard_kernels.lstm, gru or rnn, which ask for it where it is needed"
        )
    (reserve,), common = _saved(ctx, 1)
    of_cell = grad_cell if common.has_cell else None
    arguments = common.arguments(common.tensors)
    found = OPERATORS["recurrent_backward"](*arguments, reserve, grad_output, grad_hidden, of_cell)
    cell = found[2] if common.has_cell else None
    return found[0], found[1], cell, found[3], *[None] * 6


def push_forward(
    ctx: Any,
    of_input: Tensor | None,
    of_hidden: Tensor | None,
    of_cell: Tensor | None,
    of_weights: list[Tensor | None],
    *_: Any,
) -> tuple[Tensor | None, ...]:
    """Return the tangents of the forward op's results."""
    __, common = _saved(ctx, 1)
    cell = (of_cell,) if common.has_cell else ()
    moved = (of_input, of_hidden, *cell, *of_weights)
    function, primals = _of_some(common.outputs, common.tensors, moved)
    _, found = pushforward(function, primals, [t for t in moved if t is not None])
    return (*found, *[None] * (4 - len(found)))


def setup_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Save what the derivatives of the backward op need."""
    *common, _, grad_output, grad_hidden, grad_cell = inputs
    slopes = (grad_output, grad_hidden, grad_cell)
    ctx.given = [slope is not None for slope in slopes]
    made = _Common(common)
    if not made.has_cell:
        ctx.mark_non_differentiable(output[2])
    _save(ctx, made, *[slope for slope in slopes if slope is not None])


def differentiate_gradients(ctx: Any, *slopes: Any) -> tuple[Any, ...]:
    """Return the gradients of the backward op's arguments.

    The reserve is what a forward kept of the other arguments, which the derivative is of.
    """
    function, primals, common = _gradients(ctx)
    found = pullback(function, primals, _flat(common, slopes))
    own, of_slopes = found[: len(common.tensors)], iter(found[len(common.tensors) :])
    return *common.nested(own), None, *[next(of_slopes) if given else None for given in ctx.given]


def push_gradients_forward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
    """Return the tangents of the backward op's results."""
    function, primals, common = _gradients(ctx)
    *_, of_output, of_hidden, of_cell = tangents
    pairs = zip((of_output, of_hidden, of_cell), ctx.given, strict=True)
    moved = (*_flat(common, tangents[:4]), *[slope for slope, given in pairs if given])
    some, given = _of_some(function, primals, moved)
    _, found = pushforward(some, given, [t for t in moved if t is not None])
    return common.nested(found)[:4]


def _gradients(ctx: Any) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...], _Common]:
    """Return the gradients as a function of the call's tensors and of the slopes, and these."""
    slopes, common = _saved(ctx, sum(ctx.given))
    count = len(common.tensors)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        some = iter(tensors[count:])
        given = [next(some) if flag else None for flag in ctx.given]
        outputs = 3 if common.has_cell else 2
        return pullback(common.outputs, tensors[:count], given[:outputs])

    return function, (*common.tensors, *slopes), common


def _flat(common: _Common, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return what belongs to input, hidden, cell and weights as those tensors lie."""
    of_input, of_hidden, of_cell, of_weights = parts
    return of_input, of_hidden, *([of_cell] if common.has_cell else []), *of_weights


def _of_some(
    function: Callable[..., tuple[Tensor, ...]],
    primals: Sequence[Tensor],
    tangents: Sequence[Tensor | None],
) -> tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]:
    """Return a function of those arguments alone that have a tangent, and these."""

    def of_some(*some: Tensor) -> tuple[Tensor, ...]:
        given = iter(some)
        return function(
            *(
                primal if tangent is None else next(given)
                for primal, tangent in zip(primals, tangents, strict=True)
            )
        )

    return of_some, [p for p, t in zip(primals, tangents, strict=True) if t is not None]


def batched(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    """Compute more sequences, or where each has weights of its own, one after another."""
    size = info.batch_size
    given, hidden, cell, weights, lengths, *rest = args
    if any(dim is not None for dim in dims[3]):
        return one_by_one(OPERATORS["recurrent"], size, dims, args)

    def folded(tensor: Tensor, dim: int | None) -> Tensor:
        # [V, X, B, Y] as [X, V * B, Y].
        wide = in_front(tensor, dim, size).transpose(0, 1)
        return wide.reshape(wide.shape[0], size * wide.shape[2], wide.shape[3])

    def unfolded(tensor: Tensor, dim: int) -> Tensor:
        shape = tensor.shape
        return tensor.reshape(*shape[:dim], size, shape[dim] // size, *shape[dim + 1 :])

    output, last, memory, reserve = OPERATORS["recurrent"](
        folded(given, dims[0]),
        folded(hidden, dims[1]),
        None if cell is None else folded(cell, dims[2]),
        weights,
        None if lengths is None else in_front(lengths, dims[4], size).reshape(-1),
        *rest,
    )
    found = (
        unfolded(output, 1),
        unfolded(last, 1),
        in_front(memory, None, size) if cell is None else unfolded(memory, 1),
        in_front(reserve, None, size) if reserve.dim() == 1 else unfolded(reserve, 2),
    )
    return found, (1, 1, 0 if cell is None else 1, 0 if reserve.dim() == 1 else 2)


def batched_gradients(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
    """Compute the gradients one after another: those of weights are sums over sequences."""
    return one_by_one(OPERATORS["recurrent_backward"], info.batch_size, dims, args)
