"""broadcast, reduce, gather and scatter: one rank sends to, or receives from, all others.

On the other ranks the output of reduce is zeros, that of gather has no rows, and the inputs of
broadcast and scatter stand for their shape alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_moved, as_summed, padded, pieces
from torchyard_collectives._torch_compat import group_by_name
from torchyard_collectives._validation.sizes import even

__all__ = ["BROADCAST", "GATHER", "PICK", "REDUCE", "SCATTER"]


def _same_shape(shape: Sequence[int], args: Any) -> Sequence[int]:
    return shape


def _same_args(args: Any) -> Any:
    return args


def _deeper(args: Any) -> Any:
    root, dim, *rest = args
    return (root, dim + 1, *rest)


def _broadcast(x: Tensor, args: Any) -> Steps:
    src, _, _, size, group = args

    def send(part: Tensor) -> Steps:
        result = part.contiguous().clone()
        if size > 1 and result.numel():
            yield dist.broadcast(result, group=group_by_name(group), group_src=src, async_op=True)
        return result

    return as_moved(x, send)


def _broadcast_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    src, invariant, *members = args
    return PICK if invariant else REDUCE, (src, *members)


def _pick(x: Tensor, args: Any) -> Tensor:
    root, rank, _, _ = args
    return x.contiguous().clone() if rank == root else x.new_zeros(x.shape)


def _pick_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    root, *members = args
    return BROADCAST, (root, True, *members)


def _reduce(x: Tensor, args: Any) -> Steps:
    dst, rank, size, group = args

    def add(part: Tensor) -> Steps:
        result = part.contiguous().clone()
        if size > 1 and result.numel():
            yield dist.reduce(result, group=group_by_name(group), group_dst=dst, async_op=True)
        # What a backend leaves on the others is undefined.
        return result if rank == dst else result.zero_()

    return as_summed("reduce", x, add)


def _reduce_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    dst, *members = args
    return BROADCAST, (dst, False, *members)


def _reduce_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    total = sum(xs[1:], start=xs[0])
    return [total if rank == args[0][0] else torch.zeros_like(total) for rank in range(len(xs))]


def _gathered_shape(shape: Sequence[int], args: Any) -> list[Any]:
    dst, dim, sizes, elsewhere, rank, size, _ = args
    rows = shape[dim] * size if sizes is None else sum(sizes)
    return [*shape[:dim], rows if rank == dst else elsewhere, *shape[dim + 1 :]]


def _scattered_shape(shape: Sequence[int], args: Any) -> list[Any]:
    _, dim, sizes, rank, size, _ = args
    rows = shape[dim] // size if sizes is None else sizes[rank]
    return [*shape[:dim], rows, *shape[dim + 1 :]]


def _gather(x: Tensor, args: Any) -> Steps:
    dst, dim, sizes, _, rank, size, group = args

    def collect(part: Tensor) -> Steps:
        rows = part.movedim(dim, 0)
        held = [rows.shape[0]] * size if sizes is None else sizes
        sent = padded(rows, max(held))
        found = [torch.empty_like(sent) for _ in range(size)] if rank == dst else None
        if size == 1:
            found = [sent.clone()]
        elif sent.numel():
            yield dist.gather(sent, found, group=group_by_name(group), group_dst=dst, async_op=True)
        if found is None:
            return sent
        return pieces(torch.stack(found), held).movedim(0, dim).contiguous()

    result = yield from as_moved(x, collect)
    return result if rank == dst else x.new_zeros(_gathered_shape(x.shape, args))


def _gather_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    dst, dim, sizes, _, *members = args
    held = _as_many(x.shape[dim], members[1]) if sizes is None else sizes
    return SCATTER, (dst, dim, held, *members)


def _as_many(rows: Any, size: int) -> list[Any]:
    """Return as many rows for each rank as this one has."""
    return [rows] * size


def _scatter(x: Tensor, args: Any) -> Steps:
    src, dim, sizes, rank, size, group = args

    def deal(part: Tensor) -> Steps:
        rows = part.movedim(dim, 0)
        dealt = even(rows.shape[0], size) if sizes is None else sizes
        longest = max(dealt)
        received = rows.new_empty((longest, *rows.shape[1:]))
        blocks = None
        if rank == src:
            blocks = [padded(block, longest).clone() for block in torch.split(rows, dealt)]
        if blocks is not None and size == 1:
            received = blocks[0]
        elif received.numel():
            yield dist.scatter(
                received, blocks, group=group_by_name(group), group_src=src, async_op=True
            )
        return received[: dealt[rank]].movedim(0, dim).contiguous()

    return as_moved(x, deal)


def _scatter_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    src, dim, sizes, *members = args
    held = even(x.shape[dim], members[1]) if sizes is None else sizes
    return GATHER, (src, dim, held, x.shape[dim], *members)


def _gather_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    dst, dim = args[0][:2]
    whole = torch.cat(xs, dim)
    return [
        whole if rank == dst else x.new_zeros(_gathered_shape(x.shape, item))
        for rank, (x, item) in enumerate(zip(xs, args, strict=True))
    ]


def _scatter_dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    src, dim, sizes = args[0][:3]
    whole = xs[src]
    return list(
        torch.split(whole, even(whole.shape[dim], len(xs)) if sizes is None else sizes, dim)
    )


BROADCAST: Final = define(
    Operation(
        name="broadcast",
        fields="int src, bool invariant",
        shape=_same_shape,
        compute=_broadcast,
        derivative=_broadcast_transpose,
        batched=_same_args,
        dense=lambda xs, args: [xs[args[0][0]]] * len(xs),
    )
)
# An invariant value on one rank, zeros elsewhere.
PICK: Final = define(
    Operation(
        name="pick",
        fields="int root",
        shape=_same_shape,
        compute=_pick,
        derivative=_pick_transpose,
        batched=_same_args,
        dense=lambda xs, args: [
            x if item[1] == item[0] else torch.zeros_like(x)
            for x, item in zip(xs, args, strict=True)
        ],
        local=True,
    )
)
REDUCE: Final = define(
    Operation(
        name="reduce",
        fields="int dst",
        shape=_same_shape,
        compute=_reduce,
        derivative=_reduce_transpose,
        batched=_same_args,
        dense=_reduce_dense,
    )
)
GATHER: Final = define(
    Operation(
        name="gather",
        fields="int dst, int dim, SymInt[]? sizes, SymInt elsewhere",
        shape=_gathered_shape,
        compute=_gather,
        derivative=_gather_transpose,
        batched=_deeper,
        dense=_gather_dense,
    )
)
SCATTER: Final = define(
    Operation(
        name="scatter",
        fields="int src, int dim, SymInt[]? sizes",
        shape=_scattered_shape,
        compute=_scatter,
        derivative=_scatter_transpose,
        batched=_deeper,
        dense=_scatter_dense,
    )
)
