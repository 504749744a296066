"""all_reduce of max, min and product, which are not linear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._ops.all_gather import ALL_GATHER
from torchyard_collectives._ops.all_reduce import ALL_REDUCE, VARY
from torchyard_collectives._ops.operation import Derivatives, Operation, define
from torchyard_collectives._torch_compat import group_by_name

__all__ = ["EXTREME", "PRODUCT"]


def _same_shape(shape: Sequence[int], args: Any) -> Sequence[int]:
    return shape


def _same_args(args: Any) -> Any:
    return args


def _extreme(x: Tensor, args: Any) -> Tensor:
    greatest, _, _, size, group = args
    y = x.resolve_neg().contiguous().clone()
    if size > 1:
        kind = dist.ReduceOp.MAX if greatest else dist.ReduceOp.MIN
        dist.all_reduce(y, op=kind, group=group_by_name(group))
    return y


def _share(x: Tensor, y: Tensor, members: Any) -> Tensor:
    """Return this rank's part of the derivative: those that tie share it evenly, as in amax."""
    holds = ((x == y) | (x.isnan() & y.isnan())).to(x.dtype)
    return holds / ALL_REDUCE(holds, False, *members)


def _whole(gradient: Tensor, invariant: bool, members: Any) -> Tensor:
    """Return the gradient of the output as a whole on every rank."""
    return VARY(gradient, *members) if invariant else ALL_REDUCE(gradient, False, *members)


def _extreme_gradient(gradient: Tensor, x: Tensor, y: Tensor, args: Any) -> Tensor:
    _, invariant, *members = args
    return _share(x, y, members) * _whole(gradient, invariant, members)


def _extreme_tangent(tangent: Tensor, x: Tensor, y: Tensor, args: Any) -> Tensor:
    _, invariant, *members = args
    return ALL_REDUCE(_share(x, y, members) * tangent, invariant, *members)


def _extreme_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    stacked = torch.stack(xs)
    return [stacked.amax(0) if args[0][0] else stacked.amin(0)] * len(xs)


def _product(x: Tensor, args: Any) -> Tensor:
    _, _, size, group = args
    if size == 1:
        return x.contiguous().clone()
    if x.is_complex():
        return _gathered(x, args[1:]).prod(0)
    y = x.resolve_neg().contiguous().clone()
    dist.all_reduce(y, op=dist.ReduceOp.PRODUCT, group=group_by_name(group))
    return y


def _gathered(x: Tensor, members: Any) -> Tensor:
    # Each rank multiplies other factors, so gradients of the stack are partial: replicated.
    return ALL_GATHER(x.unsqueeze(0), 0, None, False, *members)


def _others(x: Tensor, members: Any) -> Tensor:
    """Return the product of the other ranks' factors: never by division, for factors of zero."""
    stack = _gathered(x, members)
    rank = members[0]
    return torch.cat([stack[:rank], stack[rank + 1 :]]).prod(0)


def _product_gradient(gradient: Tensor, x: Tensor, y: Tensor, args: Any) -> Tensor:
    invariant, *members = args
    return _others(x, members).conj() * _whole(gradient, invariant, members)


def _product_tangent(tangent: Tensor, x: Tensor, y: Tensor, args: Any) -> Tensor:
    invariant, *members = args
    return ALL_REDUCE(_others(x, members) * tangent, invariant, *members)


EXTREME: Final = define(
    Operation(
        name="all_reduce_extreme",
        fields="bool greatest, bool invariant",
        shape=_same_shape,
        compute=_extreme,
        derivative=Derivatives(_extreme_gradient, _extreme_tangent),
        batched=_same_args,
        dense=_extreme_dense,
    )
)
PRODUCT: Final = define(
    Operation(
        name="all_reduce_product",
        fields="bool invariant",
        shape=_same_shape,
        compute=_product,
        derivative=Derivatives(_product_gradient, _product_tangent),
        batched=_same_args,
        dense=lambda xs, args: [torch.stack(xs).prod(0)] * len(xs),
    )
)
