"""Checks of numbers and tensors that count positions of a sequence."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard import arguments

__all__ = ["floats", "integers", "mask_sizes", "positions"]

# A bool is no number of a document or a place: as an index it would choose something else.
_INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FLOATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
# No sequence is longer; sums of a few such numbers are within int64.
_MOST: Final = 1 << 48


def positions(of: str, name: str, value: object, *, least: int = 0) -> int:
    """Return a number of positions."""
    found = arguments.integer(of, name, value, least=least)
    if found > _MOST:
        raise arguments.wrong_value(of, name, "less than 2**48 positions", found)
    return found


def mask_sizes(
    of: str, B: object, H: object, Q_LEN: object, KV_LEN: object
) -> tuple[int, int, int, int]:
    """Return batches, heads, queries and keys of a mask; 1 where batches or heads are None."""
    return (
        1 if B is None else positions(of, "B", B, least=1),
        1 if H is None else positions(of, "H", H, least=1),
        positions(of, "Q_LEN", Q_LEN),
        positions(of, "KV_LEN", KV_LEN),
    )


def integers(of: str, name: str, value: object, shape: str, dims: tuple[int, ...] = (1,)) -> Tensor:
    """Return a tensor of integers."""
    return arguments.tensor(of, name, value, dims=dims, dtypes=_INTEGERS, shape=f"integers {shape}")


def floats(of: str, name: str, value: object, shape: str, dims: tuple[int, ...]) -> Tensor:
    """Return a tensor of floating point numbers."""
    return arguments.tensor(of, name, value, dims=dims, dtypes=_FLOATS, shape=shape)
