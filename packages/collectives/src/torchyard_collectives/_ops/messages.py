"""send, recv and barrier, chained by tokens: scalars of zero that carry order and gradients.

A send turns a tensor into a token and a recv turns a token into a tensor; each is the other's
transpose, so that the gradient of what was received travels back as a message of its own.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from torchyard_collectives import _simulation
from torchyard_collectives._ops.operation import Operation, Shaped, Steps, define
from torchyard_collectives._ops.transport import as_moved
from torchyard_collectives._torch_compat import group_by_name

__all__ = ["BARRIER", "RECV", "SEND", "TOKEN"]


def _token_shape(shape: Any, args: Any) -> Any:
    return shape[: args[0]]


def _filled_shape(shape: Any, args: Any) -> Any:
    return [*shape, *args[0]]


def _send(x: Tensor, args: Any) -> Steps:
    batch, dst, _, _, group = args

    def send(part: Tensor) -> Steps:
        if part.numel():
            yield dist.isend(part.contiguous(), group=group_by_name(group), group_dst=dst)
        return part

    yield from as_moved(x, send)
    return x.new_zeros(x.shape[:batch])


def _send_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    batch, dst, *members = args
    return RECV, (list(x.shape[batch:]), dst, *members)


def _recv(token: Tensor, args: Any) -> Steps:
    shape, src, _, _, group = args

    def receive(part: Tensor) -> Steps:
        result = torch.empty_like(part, memory_format=torch.contiguous_format)
        if result.numel():
            yield dist.irecv(result, group=group_by_name(group), group_src=src)
        return result

    return as_moved(token.new_empty((*token.shape, *shape)), receive)


def _recv_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    _, src, *members = args
    return SEND, (len(x.shape), src, *members)


def _barrier(token: Tensor, args: Any) -> Tensor:
    _, size, group = args
    if size > 1:
        dist.barrier(group=group_by_name(group))
    return token.new_zeros(token.shape)


def _token_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    return _FILL, (list(x.shape[args[0] :]), *args[1:])


def _barrier_transpose(x: Shaped, args: Any) -> tuple[Operation, Any]:
    return BARRIER, args


class _Posted(Operation):
    """An op of two ranks: a simulated process leaves or takes a message instead of meeting."""

    __slots__ = ()

    def __call__(self, x: Tensor, *args: Any) -> Tensor:
        seat = None if torch.compiler.is_compiling() else _simulation.current()
        if seat is None:
            return Operation.__call__(self, x, *args)
        first, peer, _, _, group = args
        if self is SEND:
            seat.post(x, group, peer)
            return x.new_zeros(x.shape[:first])
        return seat.fetch(group, peer)


def _not_met(xs: list[Tensor], args: list[Any]) -> list[Tensor]:
    raise AssertionError("messages are posted, not met")


SEND: Final = define(
    _Posted(
        name="send",
        fields="int batch, int dst",
        shape=_token_shape,
        compute=_send,
        derivative=_send_transpose,
        batched=lambda args: (args[0] + 1, *args[1:]),
        dense=_not_met,
        collective=False,
    )
)
RECV: Final = define(
    _Posted(
        name="recv",
        fields="SymInt[] shape, int src",
        shape=_filled_shape,
        compute=_recv,
        derivative=_recv_transpose,
        batched=lambda args: args,
        dense=_not_met,
        collective=False,
    )
)
BARRIER: Final = define(
    Operation(
        name="barrier",
        fields="",
        shape=lambda shape, args: shape,
        compute=_barrier,
        derivative=_barrier_transpose,
        batched=lambda args: args,
        dense=lambda xs, args: [torch.zeros_like(x) for x in xs],
    )
)
# A tensor's token: what must come after the tensor, and carry a gradient where it does.
TOKEN: Final = define(
    Operation(
        name="token",
        fields="int batch",
        shape=_token_shape,
        compute=lambda x, args: x.new_zeros(x.shape[: args[0]]),
        derivative=_token_transpose,
        batched=lambda args: (args[0] + 1, *args[1:]),
        dense=lambda xs, args: [x.new_zeros(()) for x in xs],
        local=True,
    )
)
_FILL: Final = define(
    Operation(
        name="fill",
        fields="SymInt[] shape",
        shape=_filled_shape,
        compute=lambda token, args: token.new_zeros((*token.shape, *args[0])),
        derivative=lambda x, args: (TOKEN, (len(x.shape), *args[1:])),
        batched=lambda args: args,
        dense=_not_met,
        local=True,
    )
)
