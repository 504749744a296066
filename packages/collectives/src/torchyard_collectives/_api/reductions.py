"""all_reduce, reduce and reduce_scatter as users call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_collectives._api.pending import Pending, start
from torchyard_collectives._ops.all_gather import REDUCE_SCATTER
from torchyard_collectives._ops.all_reduce import ALL_REDUCE
from torchyard_collectives._ops.all_to_all import ALL_TO_ALL
from torchyard_collectives._ops.extremes import EXTREME, PRODUCT
from torchyard_collectives._ops.rooted import GATHER, REDUCE
from torchyard_collectives._validation.gradient import Grad, parse_gradient
from torchyard_collectives._validation.group import Group, resolve
from torchyard_collectives._validation.reduction import (
    Op,
    Reduction,
    after_sum,
    before_sum,
    parse_reduction,
)
from torchyard_collectives._validation.sizes import check_root, check_split, dimension, even

__all__ = ["all_reduce", "reduce", "reduce_scatter"]


@overload
def all_reduce(
    x: Tensor,
    op: Op = "sum",
    group: Group = None,
    *,
    grad: Grad,
    async_op: Literal[False] = False,
) -> Tensor: ...


@overload
def all_reduce(
    x: Tensor, op: Op = "sum", group: Group = None, *, grad: Grad, async_op: Literal[True]
) -> Pending: ...


def all_reduce(
    x: Tensor, op: Op = "sum", group: Group = None, *, grad: Grad, async_op: bool = False
) -> Tensor | Pending:
    """Reduce every rank's x, elementwise, to one result that all ranks get.

    Where several ranks hold the greatest or least element, each gets an even share of its
    gradient, as in ``torch.amax``. The gradient of a product multiplies the other ranks' factors,
    which are gathered for it, so that zeros among them are right.

    Args:
        x: of the same shape and dtype on every rank.
        op: "sum", "avg", "min", "max", "product" or PremulSum(factor).
        group: see ``docs/collectives.md``; None: all ranks.
        grad: "sum", "replicated", or Typed from "partial" or "varying" to "replicated" or
            "invariant".
        async_op: whether to return at once, with a Pending; for sums alone.

    Returns:
        x's shape and dtype.

    Raises:
        GroupError, GradientConventionError: there is no such group, or no such gradient.
        ValueError, TypeError: no such reduction, or none of x's dtype.
    """
    _, invariant = parse_gradient("all_reduce", grad, x)
    kind = parse_reduction(op, x)
    members = resolve(group)
    if arguments.boolean("collective", "async_op", async_op):
        _check_async(kind, op)
        pending = start(ALL_REDUCE, before_sum(x, op), invariant, *members)
        return pending.then(lambda total: after_sum(total, kind, members.size))
    if kind.multiplied:
        return PRODUCT(x, invariant, *members)
    if not (kind.summed or kind.averaged):
        return EXTREME(x, kind.greatest, invariant, *members)
    return after_sum(ALL_REDUCE(before_sum(x, op), invariant, *members), kind, members.size)


def reduce(x: Tensor, dst: int, op: Op = "sum", group: Group = None, *, grad: Grad) -> Tensor:
    """Reduce every rank's x, elementwise, to a result that one rank gets; the others get zeros.

    Args:
        x: of the same shape and dtype on every rank.
        dst: who gets it, as a rank within the group.
        op: as for all_reduce; "min", "max" and "product" gather what they reduce.
        group: as for all_reduce.
        grad: "sum", "replicated" (here the same), or Typed from "partial" or "varying" to
            "varying".

    Returns:
        x's shape and dtype.
    """
    parse_gradient("reduce", grad, x)
    kind = parse_reduction(op, x)
    members = resolve(group)
    check_root("dst", dst, members)
    if kind.summed or kind.averaged:
        return after_sum(REDUCE(before_sum(x, op), dst, *members), kind, members.size)
    stack = GATHER(x.unsqueeze(0), dst, 0, None, 0, *members)
    # Of nothing elsewhere, which is zeros that are part of the graph.
    return _reduced(stack, kind) if members.rank == dst else stack.sum(0, dtype=x.dtype)


@overload
def reduce_scatter(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    op: Op = "sum",
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[False] = False,
) -> Tensor: ...


@overload
def reduce_scatter(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    op: Op = "sum",
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[True],
) -> Pending: ...


def reduce_scatter(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    op: Op = "sum",
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: bool = False,
) -> Tensor | Pending:
    """Reduce every rank's x, elementwise, and give each rank some rows of the result.

    Args:
        x: of the same shape and dtype on every rank.
        dim: the dimension whose rows are dealt out.
        group: as for all_reduce.
        op: as for all_reduce; "min", "max" and "product" exchange what they reduce.
        sizes: rows for each rank; None: evenly.
        grad: "sum", "replicated" (here the same), or Typed from "partial" or "varying" to
            "varying".
        async_op: as for all_reduce.

    Returns:
        x's shape, with this rank's rows in ``dim``.

    Raises:
        ValueError: the rows cannot be dealt out so.
    """
    parse_gradient("reduce_scatter", grad, x)
    kind = parse_reduction(op, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    dealt = check_split("sizes", x, dim, sizes, members)
    if arguments.boolean("collective", "async_op", async_op):
        _check_async(kind, op)
        pending = start(REDUCE_SCATTER, before_sum(x, op), dim, dealt, *members)
        return pending.then(lambda total: after_sum(total, kind, members.size))
    if kind.summed or kind.averaged:
        total = REDUCE_SCATTER(before_sum(x, op), dim, dealt, *members)
        return after_sum(total, kind, members.size)
    own = (even(x.shape[dim], members.size) if dealt is None else dealt)[members.rank]
    output_sizes = None if dealt is None else [own] * members.size
    exchanged = ALL_TO_ALL(x, dim, dealt, dim, output_sizes, *members)
    return _reduced(torch.stack(torch.split(exchanged, [own] * members.size, dim)), kind)


def _reduced(stack: Tensor, kind: Reduction) -> Tensor:
    """Return the greatest, least or product along the first dimension."""
    if kind.multiplied:
        return stack.prod(0, dtype=stack.dtype)
    return stack.amax(0) if kind.greatest else stack.amin(0)


def _check_async(kind: Reduction, op: Op) -> None:
    if not (kind.summed or kind.averaged):
        raise ValueError(f"async_op: expected a sum or avg, got {op!r}; leave async_op out")
