"""all_gather, reduce_scatter and the local slice: rows concatenated and distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_collectives._ops import transport
from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_moved, as_summed, padded, pieces
from torchyard_collectives._torch_compat import group_by_name
from torchyard_collectives._validation.sizes import even

__all__ = ["ALL_GATHER", "REDUCE_SCATTER", "SHARD"]


def _deeper(args: Any) -> Any:
    """Return (dim, ...) for a tensor with one more dimension in front."""
    return (args[0] + 1, *args[1:])


def _gathered_shape(shape: Sequence[int], args: Any) -> list[Any]:
    dim, sizes, _, _, size, _ = args
    rows = shape[dim] * size if sizes is None else sum(sizes)
    return [*shape[:dim], rows, *shape[dim + 1 :]]


def _dealt_shape(shape: Sequence[int], args: Any) -> list[Any]:
    dim, sizes, rank, size, _ = args
    rows = shape[dim] // size if sizes is None else sizes[rank]
    return [*shape[:dim], rows, *shape[dim + 1 :]]


def _all_gather(x: Tensor, args: Any) -> Tensor | Steps:
    dim, sizes, _, _, size, group = args
    if size == 1:
        return x.contiguous().clone()

    def gather(part: Tensor) -> Steps:
        rows = part.movedim(dim, 0)
        longest = rows.shape[0] if sizes is None else max(sizes)
        sent = padded(rows, longest)
        received = sent.new_empty((size * longest, *sent.shape[1:]))
        if received.numel():
            yield transport.all_gather(received, sent, group=group_by_name(group), async_op=True)
        if sizes is not None:
            received = pieces(received.view(size, longest, *received.shape[1:]), sizes)
        return received.movedim(0, dim).contiguous()

    return as_moved(x, gather)


def _reduce_scatter(x: Tensor, args: Any) -> Steps:
    dim, sizes, rank, size, group = args

    def add(part: Tensor) -> Steps:
        if size == 1:
            return part.contiguous().clone()
        rows = part.movedim(dim, 0)
        dealt = even(rows.shape[0], size) if sizes is None else sizes
        longest = max(dealt)
        sent = rows
        if sizes is not None:
            sent = torch.cat([padded(block, longest) for block in torch.split(rows, dealt)])
        sent = sent.contiguous()
        received = sent.new_empty((longest, *sent.shape[1:]))
        if sent.numel():
            # Some backends add within what they are given.
            own = sent.clone() if sent.data_ptr() == part.data_ptr() else sent
            yield transport.reduce_scatter(received, own, group=group_by_name(group), async_op=True)
        return received[: dealt[rank]].movedim(0, dim).contiguous()

    return as_summed("reduce_scatter", x, add)


def _slice(x: Tensor, args: Any) -> Tensor:
    dim, sizes, rank, size, _ = args
    dealt = even(x.shape[dim], size) if sizes is None else sizes
    return x.narrow(dim, sum(dealt[:rank]), dealt[rank]).contiguous().clone()


def _all_gather_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    dim, sizes, invariant, *members = args
    return SHARD if invariant else REDUCE_SCATTER, (dim, sizes, *members)


def _reduce_scatter_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    dim, sizes, *members = args
    return ALL_GATHER, (dim, sizes, False, *members)


def _shard_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    dim, sizes, *members = args
    return ALL_GATHER, (dim, sizes, True, *members)


def _shard_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    return [_block(x, *item[:4]) for x, item in zip(xs, args, strict=True)]


def _reduce_scatter_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    total = sum(xs[1:], start=xs[0])
    return [_block(total, *item[:4]) for item in args]


def _block(x: Tensor, dim: int, sizes: list[int] | None, rank: int, size: int) -> Tensor:
    return torch.split(x, even(x.shape[dim], size) if sizes is None else sizes, dim)[rank]


ALL_GATHER: Final = define(
    Operation(
        name="all_gather",
        fields="int dim, SymInt[]? sizes, bool invariant",
        shape=_gathered_shape,
        compute=_all_gather,
        derivative=_all_gather_transpose,
        batched=_deeper,
        dense=lambda xs, args: [torch.cat(xs, args[0][0])] * len(xs),
    )
)
REDUCE_SCATTER: Final = define(
    Operation(
        name="reduce_scatter",
        fields="int dim, SymInt[]? sizes",
        shape=_dealt_shape,
        compute=_reduce_scatter,
        derivative=_reduce_scatter_transpose,
        batched=_deeper,
        dense=_reduce_scatter_dense,
    )
)
# This rank's slice of an invariant value.
SHARD: Final = define(
    Operation(
        name="shard",
        fields="int dim, SymInt[]? sizes",
        shape=_dealt_shape,
        compute=_slice,
        derivative=_shard_transpose,
        batched=_deeper,
        dense=_shard_dense,
        local=True,
    )
)
