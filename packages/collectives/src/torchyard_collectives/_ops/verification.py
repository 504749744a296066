"""``verified``: compare every rank's call before it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor

from torchyard_collectives._errors import CallMismatchError
from torchyard_collectives._torch_compat import group_by_name

__all__ = ["verified", "verify"]

_active: list[bool] = []

# Where ranks' shapes may differ by the dimension that is put together or taken apart, which the
# op's sizes name and check.
_UNEVEN = {"all_gather", "all_to_all", "gather", "scatter"}


@contextlib.contextmanager
def verified() -> Iterator[None]:
    """Compare the ranks' calls before each collective, and raise where they differ.

    What one rank cannot see alone (that another called something else, with another shape or
    dtype, or with a tensor that does or does not require gradients) is exchanged first. That costs
    several small collectives per call: for tests and for finding a fault. Point-to-point ops, which
    not all members call, are not compared; inside of compiled code requires_grad is not seen.

    Raises:
        CallMismatchError: from each collective that the ranks do not agree on.
    """
    _active.append(True)
    try:
        yield
    finally:
        _active.pop()


def verify(name: str, x: Tensor, args: tuple[Any, ...]) -> None:
    """Exchange what this rank is about to call, inside of ``verified()``."""
    if not _active:
        return
    *fields, _, size, group_name = args
    shape: tuple[int, ...] | int = x.ndim if name in _UNEVEN else tuple(x.shape)
    fields = [] if name in _UNEVEN else fields
    own = (name, shape, str(x.dtype), x.requires_grad, fields)
    group = group_by_name(group_name)
    calls: list[Any] = [None] * size
    dist.all_gather_object(calls, own, group)
    if any(call != calls[0] for call in calls):
        told = "".join(
            f"\n  rank {rank}: {call[0]} of {call[2]} {call[1]}, requires_grad={call[3]}, {call[4]}"
            for rank, call in enumerate(calls)
        )
        raise CallMismatchError(f"the ranks of group {group_name!r} do not make one call:{told}")
