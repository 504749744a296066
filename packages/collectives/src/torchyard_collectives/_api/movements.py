"""all_gather, all_to_all, broadcast, gather, scatter, shard and vary as users call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from torch import Tensor

from torchyard import arguments
from torchyard_collectives._api.pending import Pending, start
from torchyard_collectives._ops.all_gather import ALL_GATHER, SHARD
from torchyard_collectives._ops.all_reduce import VARY
from torchyard_collectives._ops.all_to_all import ALL_TO_ALL
from torchyard_collectives._ops.rooted import BROADCAST, GATHER, SCATTER
from torchyard_collectives._validation.gradient import Grad, parse_gradient
from torchyard_collectives._validation.group import Group, resolve
from torchyard_collectives._validation.sizes import (
    check_root,
    check_sizes,
    check_split,
    dimension,
    even,
)

__all__ = ["all_gather", "all_to_all", "broadcast", "gather", "scatter", "shard", "vary"]


@overload
def all_gather(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[False] = False,
) -> Tensor: ...


@overload
def all_gather(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[True],
) -> Pending: ...


def all_gather(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: bool = False,
) -> Tensor | Pending:
    """Put every rank's rows together, in the order of ranks, for all ranks.

    Args:
        x: of the same shape and dtype on every rank, but for ``dim`` where ``sizes`` are given.
        dim: the dimension along which they lie.
        group: as for all_reduce.
        sizes: each rank's rows; None: as many as here.
        grad: "sum", "replicated", or Typed from "varying" to "replicated" or "invariant".
        async_op: as for all_reduce.

    Returns:
        x's shape, with all rows in ``dim``.

    Raises:
        ValueError: x has no such dimension, or other rows than its size says.
    """
    _, invariant = parse_gradient("all_gather", grad, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    held = None if sizes is None else check_sizes("sizes", sizes, members)
    if held is not None and held[members.rank] != x.shape[dim]:
        raise ValueError(
            f"sizes: expected {x.shape[dim]} for rank {members.rank}, x's rows, got {held}"
        )
    if arguments.boolean("collective", "async_op", async_op):
        return start(ALL_GATHER, x, dim, held, invariant, *members)
    return ALL_GATHER(x, dim, held, invariant, *members)


@overload
def all_to_all(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    concat_dim: int | None = None,
    input_sizes: Sequence[int] | None = None,
    output_sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[False] = False,
) -> Tensor: ...


@overload
def all_to_all(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    concat_dim: int | None = None,
    input_sizes: Sequence[int] | None = None,
    output_sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: Literal[True],
) -> Pending: ...


def all_to_all(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    concat_dim: int | None = None,
    input_sizes: Sequence[int] | None = None,
    output_sizes: Sequence[int] | None = None,
    grad: Grad,
    async_op: bool = False,
) -> Tensor | Pending:
    """Deal out rows to all ranks, and put together what comes from each.

    Args:
        x: taken apart along ``dim``; part r goes to rank r.
        dim: the dimension whose rows are dealt out.
        group: as for all_reduce.
        concat_dim: the dimension along which what arrives is put together; None: ``dim``.
        input_sizes: rows for each rank. With another ``concat_dim`` they are the same on every
            rank. None: evenly, and as evenly on every rank.
        output_sizes: rows from each rank, along ``concat_dim``; with ``input_sizes``.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".
        async_op: as for all_reduce.

    Raises:
        ValueError: the rows cannot be dealt out so.
    """
    parse_gradient("all_to_all", grad, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    concat = dim if concat_dim is None else dimension("concat_dim", x, concat_dim)
    if (input_sizes is None) != (output_sizes is None):
        given = "input_sizes" if output_sizes is None else "output_sizes"
        raise ValueError(f"{given}: expected input_sizes and output_sizes together, got one")
    dealt = check_split("input_sizes", x, dim, input_sizes, members)
    held = None if output_sizes is None else check_sizes("output_sizes", output_sizes, members)
    if held is not None and concat != dim and held[members.rank] != x.shape[concat]:
        raise ValueError(
            f"output_sizes: expected {x.shape[concat]} for rank {members.rank}, x's rows of "
            f"dimension {concat}, got {held}"
        )
    if held is not None and dealt is not None and concat == dim:
        rank = members.rank
        if held[rank] != dealt[rank]:
            raise ValueError(
                f"output_sizes: expected {dealt[rank]} from rank {rank} itself, as input_sizes "
                f"say, got {held}"
            )
    args = (dim, dealt, concat, held, *members)
    async_op = arguments.boolean("all_to_all", "async_op", async_op)
    return start(ALL_TO_ALL, x, *args) if async_op else ALL_TO_ALL(x, *args)


def broadcast(x: Tensor, src: int, group: Group = None, *, grad: Grad) -> Tensor:
    """Give every rank the x of one.

    Args:
        x: on ``src`` what is sent; elsewhere of the same shape and dtype, and it must require
            gradients where src's does, because its rank takes part in the backward.
        src: whose, as a rank within the group.
        group: as for all_reduce.
        grad: "sum", "replicated", or Typed from "varying" to "replicated" or "invariant".

    Returns:
        x's shape and dtype. Gradients of x are zeros but on ``src``.
    """
    _, invariant = parse_gradient("broadcast", grad, x)
    members = resolve(group)
    return BROADCAST(x, check_root("src", src, members), invariant, *members)


def gather(
    x: Tensor,
    dst: int,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
) -> Tensor:
    """Put every rank's rows together for one rank; the others get no rows.

    Args:
        x: as for all_gather.
        dst: who gets them, as a rank within the group.
        dim, group, sizes: as for all_gather.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".

    Returns:
        x's shape, with all rows in ``dim`` on ``dst`` and none elsewhere.
    """
    parse_gradient("gather", grad, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    held = None if sizes is None else check_sizes("sizes", sizes, members)
    if held is not None and held[members.rank] != x.shape[dim]:
        raise ValueError(
            f"sizes: expected {x.shape[dim]} for rank {members.rank}, x's rows, got {held}"
        )
    return GATHER(x, check_root("dst", dst, members), dim, held, 0, *members)


def scatter(
    x: Tensor,
    src: int,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
) -> Tensor:
    """Deal out one rank's rows to all ranks.

    Args:
        x: on ``src`` what is dealt out. Elsewhere it stands for the dtype and the other
            dimensions, and with ``sizes`` it needs no rows; it must require gradients where src's
            does.
        src: whose, as a rank within the group.
        dim: the dimension whose rows are dealt out.
        group: as for all_reduce.
        sizes: rows for each rank; None: evenly.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".

    Returns:
        x's shape, with this rank's rows in ``dim``. Gradients of x are zeros but on ``src``.
    """
    parse_gradient("scatter", grad, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    check_root("src", src, members)
    if sizes is not None and members.rank != src:
        dealt: list[int] | None = check_sizes("sizes", sizes, members)
    else:
        dealt = check_split("sizes", x, dim, sizes, members)
    return SCATTER(x, src, dim, dealt, *members)


def shard(
    x: Tensor,
    dim: int = 0,
    group: Group = None,
    *,
    sizes: Sequence[int] | None = None,
    grad: Grad,
) -> Tensor:
    """Return this rank's rows of a tensor that all ranks hold; nothing is sent.

    Args:
        x: the same on every rank.
        dim: the dimension whose rows are dealt out.
        group: as for all_reduce.
        sizes: rows for each rank; None: evenly.
        grad: "sum" (each rank's gradient of x is a term, zeros but in its rows), "replicated" (the
            backward gathers, and each has the whole gradient), or Typed from "replicated" or
            "invariant" to "varying".
    """
    invariant, _ = parse_gradient("shard", grad, x)
    members = resolve(group)
    dim = dimension("dim", x, dim)
    dealt = check_split("sizes", x, dim, sizes, members)
    if invariant:
        return SHARD(x, dim, dealt, *members)
    rows = even(x.shape[dim], members.size) if dealt is None else dealt
    return x.narrow(dim, sum(rows[: members.rank]), rows[members.rank])


def vary(x: Tensor, group: Group = None, *, grad: Grad) -> Tensor:
    """Hand a tensor that all ranks hold to computations that differ by rank; nothing is sent.

    Args:
        x: the same on every rank.
        group: as for all_reduce.
        grad: "replicated" (the backward adds every rank's gradient, and each has the whole),
            "sum" (each rank's gradient stays a term), or Typed from "invariant" to "varying" or
            "replicated", or from "replicated" to "varying".
    """
    invariant, _ = parse_gradient("vary", grad, x)
    members = resolve(group)
    return VARY(x, *members) if invariant else x
