"""permute, shift, send, recv and barrier as users call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_collectives._ops.messages import BARRIER, RECV, SEND, TOKEN
from torchyard_collectives._ops.order import order
from torchyard_collectives._ops.permute import PERMUTE
from torchyard_collectives._validation.gradient import Grad, parse_gradient
from torchyard_collectives._validation.group import Group, Members, resolve
from torchyard_collectives._validation.sizes import check_root

__all__ = ["barrier", "permute", "recv", "send", "shift"]


def permute(
    x: Tensor,
    route: Mapping[int, int] | Iterable[tuple[int, int]],
    group: Group = None,
    *,
    grad: Grad,
) -> Tensor:
    """Send each rank's x to at most one other rank; a rank to which nothing is sent gets zeros.

    Args:
        x: any shape, the same on every rank of the route.
        route: who sends to whom, as ranks within the group: {0: 1, 1: 0} or pairs. The same on
            every rank. Ranks may be left out, and may send to themselves.
        group: as for all_reduce.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".

    Returns:
        x's shape and dtype.

    Raises:
        ValueError: a rank sends or gets twice, or is not there.
    """
    parse_gradient("permute", grad, x)
    members = resolve(group)
    return _permute("route", x, [_pair(pair) for pair in _pairs(route)], members)


def _pairs(route: object) -> list[Any]:
    if not isinstance(route, Iterable) or isinstance(route, str | bytes | Tensor):
        raise arguments.wrong_kind("permute", "route", "pairs of ranks", route)
    return list(route.items() if isinstance(route, Mapping) else route)


def _pair(pair: object) -> tuple[int, int]:
    source, target = arguments.sequence(
        "permute", "route", pair, arguments.integer, expected="pairs of ranks", length=2
    )
    return source, target


def _permute(name: str, x: Tensor, pairs: list[tuple[int, int]], members: Members) -> Tensor:
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for what, ranks in (("sends", sources), ("gets", targets)):
        for rank in ranks:
            check_root(name, rank, members)
            if ranks.count(rank) > 1:
                raise ValueError(f"{name}: expected each rank once, but rank {rank} {what} twice")
    return PERMUTE(x, sources, targets, *members)


def shift(
    x: Tensor, offset: int = 1, group: Group = None, *, wrap: bool = True, grad: Grad
) -> Tensor:
    """Send x to the rank ``offset`` further on, and return what comes from as far before.

    Args:
        x: any shape, the same on every rank.
        offset: how far; negative: towards rank 0.
        group: as for all_reduce.
        wrap: whether the last ranks send to the first; otherwise these get zeros.
        grad: as for permute.
    """
    parse_gradient("shift", grad, x)
    members = resolve(group)
    size = members.size
    offset = arguments.integer("shift", "offset", offset)
    wrap = arguments.boolean("shift", "wrap", wrap)
    pairs = [
        (rank, (rank + offset) % size) for rank in range(size) if wrap or 0 <= rank + offset < size
    ]
    return _permute("offset", x, pairs, members)


def send(
    x: Tensor, dst: int, group: Group = None, *, after: Tensor | None = None, grad: Grad
) -> Tensor:
    """Send x to one rank, which calls recv, and return a token.

    The backward of recv sends the gradient back, and this rank must take it: order something that
    the loss depends on after the token (``loss = order(loss, token)``), or the other rank waits in
    vain.

    Args:
        x: any tensor.
        dst: to whom, as a rank within the group.
        group: as for all_reduce.
        after: what must be there before x is sent, such as an earlier token.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".

    Returns:
        a scalar zero of x's dtype.

    Raises:
        ValueError: dst is this rank, or none.
    """
    parse_gradient("send", grad, x)
    if after is not None:
        arguments.tensor("send", "after", after)
    members = resolve(group)
    _check_peer("dst", dst, members)
    return SEND(x if after is None else order(x, after), 0, dst, *members)


def recv(
    like: Tensor, src: int, group: Group = None, *, after: Tensor | None = None, grad: Grad
) -> Tensor:
    """Return what one rank sends.

    Args:
        like: of the shape, dtype and device of what is sent; its values do not matter. It must
            require gradients (and carry a tangent) where the sender's x does, so that this rank
            sends the gradient back. Its own gradient is zeros.
        src: from whom, as a rank within the group.
        group: as for all_reduce.
        after: what must be there before, such as an earlier token.
        grad: "sum", "replicated" (here the same), or Typed from "varying" to "varying".
    """
    parse_gradient("recv", grad, like, "like")
    if after is not None:
        arguments.tensor("recv", "after", after)
    members = resolve(group)
    _check_peer("src", src, members)
    token = TOKEN(like if after is None else order(like, after), 0, *members)
    return RECV(token, list(like.shape), src, *members)


def _check_peer(name: str, peer: int, members: Members) -> None:
    if check_root(name, peer, members) == members.rank:
        raise ValueError(f"{name}: expected another rank than {peer}, which is this one")


def barrier(group: Group = None, *, after: Tensor | None = None) -> Tensor:
    """Wait until every rank is here, and return a token.

    It moves no values, so it needs no convention. Where ``after`` requires gradients on every rank,
    its backward is a barrier as well, for those whose loss depends on the token (``order``).

    Args:
        group: as for all_reduce.
        after: what must be there before.

    Returns:
        a scalar zero, float32 or of the dtype of ``after``.
    """
    if after is not None:
        arguments.tensor("barrier", "after", after)
    members = resolve(group)
    token = torch.zeros(()) if after is None else TOKEN(after, 0, *members)
    return BARRIER(token, *members)
