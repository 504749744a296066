"""Tensors in dtypes that every backend takes, and the calls of torch.distributed for them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "Work",
    "all_gather",
    "as_moved",
    "as_summed",
    "padded",
    "pieces",
    "reduce_scatter",
]

# Backends send and add these; other dtypes travel as bytes.
_KNOWN: Final = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    | {torch.int8, torch.uint8, torch.int32, torch.int64}
)
_SUMMED: Final = _KNOWN | {torch.complex64, torch.complex128}

# torch 2.13 renamed them.
all_gather: Final = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter: Final = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Work = Callable[[Tensor], Generator[Any, None, Tensor]]


def as_moved(x: Tensor, work: Work) -> Generator[Any, None, Tensor]:
    """Do work that only moves elements along leading dimensions, in a dtype that backends send.

    Args:
        x: of any dtype.
        work: from a tensor to one of its dtype, yielding what is under way. Both have one dimension
            more at the end where the dtype of x is not sent as it is.
    """
    if x.is_complex():
        parts = yield from work(torch.view_as_real(x.resolve_conj()))
        return torch.view_as_complex(parts)
    x = x.resolve_neg()
    if x.dtype in _KNOWN:
        return (yield from work(x))
    moved = yield from work(x.contiguous().unsqueeze(-1).view(torch.uint8))
    return moved.view(x.dtype).squeeze(-1)


def as_summed(name: str, x: Tensor, work: Work) -> Generator[Any, None, Tensor]:
    """Do work that adds elements, on real and imaginary parts alike.

    Raises:
        TypeError: backends do not add x's dtype.
    """
    if x.dtype not in _SUMMED:
        known = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in _SUMMED))
        raise TypeError(f"x: {name} adds {known}, got {x.dtype}; convert it first")
    if x.is_complex():
        parts = yield from work(torch.view_as_real(x.resolve_conj()))
        return torch.view_as_complex(parts)
    return (yield from work(x.resolve_neg()))


def padded(rows: Tensor, length: int) -> Tensor:
    """Return rows contiguous, with zeros after them up to a length."""
    if rows.shape[0] == length:
        return rows.contiguous()
    result = rows.new_zeros((length, *rows.shape[1:]))
    result[: rows.shape[0]] = rows
    return result


def pieces(rows: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Return the first rows of each block: [W, longest, ...] to [sum(sizes), ...]."""
    return torch.cat([block[:size] for block, size in zip(rows.unbind(0), sizes, strict=True)])
