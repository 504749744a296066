"""all_reduce of sums, and ``vary``, its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_summed
from torchyard_collectives._torch_compat import group_by_name

__all__ = ["ALL_REDUCE", "VARY"]


def _same_shape(shape: Sequence[int], args: Any) -> Sequence[int]:
    return shape


def _same_args(args: Any) -> Any:
    return args


def _all_reduce(x: Tensor, args: Any) -> Steps:
    _, _, size, group = args

    def add(part: Tensor) -> Steps:
        result = part.contiguous().clone()
        if size > 1:
            yield dist.all_reduce(result, group=group_by_name(group), async_op=True)
        return result

    return as_summed("all_reduce", x, add)


def _all_reduce_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    invariant, *members = args
    # Partial gradients of a replicated sum are added; the whole one of an invariant sum is each
    # term's.
    return (VARY, members) if invariant else (ALL_REDUCE, (False, *members))


def _all_reduce_dense(xs: list[Tensor], args: Any) -> list[Tensor]:
    return [sum(xs[1:], start=xs[0])] * len(xs)


def _vary_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    return ALL_REDUCE, (True, *args)


ALL_REDUCE: Final = define(
    Operation(
        name="all_reduce",
        fields="bool invariant",
        shape=_same_shape,
        compute=_all_reduce,
        derivative=_all_reduce_transpose,
        batched=_same_args,
        dense=_all_reduce_dense,
    )
)
# An invariant value as each rank's own.
VARY: Final = define(
    Operation(
        name="vary",
        fields="",
        shape=_same_shape,
        compute=lambda x, args: x.contiguous().clone(),
        derivative=_vary_transpose,
        batched=_same_args,
        dense=lambda xs, args: xs,
        local=True,
    )
)
