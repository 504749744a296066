"""all_to_all: rank s's r-th part becomes rank r's s-th."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_moved
from torchyard_collectives._torch_compat import group_by_name
from torchyard_collectives._validation.sizes import even

__all__ = ["ALL_TO_ALL"]


def _parts(shape: Sequence[int], args: Any) -> list[list[Any]]:
    """Return the shape of what comes from each rank."""
    split_dim, input_sizes, concat_dim, output_sizes, rank, size, _ = args
    shapes = []
    for source in range(size):
        part = list(shape)
        if input_sizes is not None:
            part[split_dim] = input_sizes[rank]
            part[concat_dim] = output_sizes[source]
        else:
            part[split_dim] = part[split_dim] // size
        shapes.append(part)
    return shapes


def _shape(shape: Sequence[int], args: Any) -> list[Any]:
    concat_dim = args[2]
    parts = _parts(shape, args)
    result = list(parts[0])
    result[concat_dim] = sum(part[concat_dim] for part in parts)
    return result


def _compute(x: Tensor, args: Any) -> Tensor | Steps:
    split_dim, input_sizes, concat_dim, _, _, size, group = args
    if size == 1:
        return x.contiguous().clone()

    def exchange(part: Tensor) -> Steps:
        dealt = even(part.shape[split_dim], size) if input_sizes is None else input_sizes
        blocks = torch.split(part, dealt, split_dim)
        sent = torch.cat([block.reshape(-1) for block in blocks])
        shapes = _parts(part.shape, args)
        counts = [math.prod(shape) for shape in shapes]
        received = sent.new_empty(sum(counts))
        yield dist.all_to_all_single(
            *(received, sent, counts, [block.numel() for block in blocks]),
            group=group_by_name(group),
            async_op=True,
        )
        found = [
            flat.view(shape)
            for flat, shape in zip(torch.split(received, counts), shapes, strict=True)
        ]
        return torch.cat(found, concat_dim)

    return as_moved(x, exchange)


def _transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    split_dim, input_sizes, concat_dim, output_sizes, *members = args
    return ALL_TO_ALL, (concat_dim, output_sizes, split_dim, input_sizes, *members)


def _batched(args: Any) -> Any:
    split_dim, input_sizes, concat_dim, output_sizes, *members = args
    return (split_dim + 1, input_sizes, concat_dim + 1, output_sizes, *members)


def _dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    split = [
        torch.split(x, even(x.shape[item[0]], len(xs)) if item[1] is None else item[1], item[0])
        for x, item in zip(xs, args, strict=True)
    ]
    return [torch.cat([blocks[rank] for blocks in split], args[0][2]) for rank in range(len(xs))]


ALL_TO_ALL: Final = define(
    Operation(
        name="all_to_all",
        fields="int split_dim, SymInt[]? input_sizes, int concat_dim, SymInt[]? output_sizes",
        shape=_shape,
        compute=_compute,
        derivative=_transpose,
        batched=_batched,
        dense=_dense,
    )
)
