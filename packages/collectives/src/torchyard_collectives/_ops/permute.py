"""permute: each rank's tensor to at most one other; zeros where nothing arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_moved
from torchyard_collectives._torch_compat import group_by_name

__all__ = ["PERMUTE"]


def _peers(args: Any) -> tuple[int | None, int | None]:
    """Return from whom this rank gets and to whom it gives."""
    sources, targets, rank, _, _ = args
    source = next((s for s, t in zip(sources, targets, strict=True) if t == rank), None)
    target = next((t for s, t in zip(sources, targets, strict=True) if s == rank), None)
    return source, target


def _permute(x: Tensor, args: Any) -> Steps:
    *_, rank, _, name = args
    source, target = _peers(args)

    def exchange(part: Tensor) -> Steps:
        sent = part.contiguous()
        if source == rank:
            return sent.clone()
        received = torch.zeros_like(sent)
        if not sent.numel():
            return received
        group, calls = group_by_name(name), []
        if source is not None:
            calls.append(dist.P2POp(dist.irecv, received, group=group, group_peer=source))
        if target is not None:
            calls.append(dist.P2POp(dist.isend, sent, group=group, group_peer=target))
        yield from dist.batch_isend_irecv(calls) if calls else ()
        return received

    return as_moved(x, exchange)


def _transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    sources, targets, *members = args
    return PERMUTE, (targets, sources, *members)


def _dense(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    origin = dict(zip(args[0][1], args[0][0], strict=True))
    return [xs[origin[r]] if r in origin else torch.zeros_like(xs[r]) for r in range(len(xs))]


def _same_shape(shape: Sequence[int], args: Any) -> Sequence[int]:
    return shape


PERMUTE: Final = define(
    Operation(
        name="permute",
        fields="int[] sources, int[] targets",
        shape=_same_shape,
        compute=_permute,
        derivative=_transpose,
        batched=lambda args: args,
        dense=_dense,
        collective=False,
    )
)
