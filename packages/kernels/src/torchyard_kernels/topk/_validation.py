"""What topk's functions refuse."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.topk.contract import DTYPES

__all__ = ["check_bounds", "check_mask", "check_offsets", "check_tensor", "checked_k", "dim_of"]

_DTYPES: Final = frozenset(getattr(torch, name) for name in DTYPES)
_BOOL: Final = (torch.bool,)
_INT64: Final = (torch.int64,)
# More are selected of no row: kernels count within rows with 32 bits.
_MOST_K: Final = (1 << 31) - 1


def check_tensor(function: str, x: Any) -> None:
    """Raise TypeError unless x is a tensor of a dtype that is ordered here."""
    arguments.tensor(function, "x", x)
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"{function}: x: expected one of {', '.join(DTYPES)}, got {str(x.dtype)[6:]}; cast x, "
            "a bool one to uint8"
        )


def dim_of(function: str, x: Tensor, dim: Any) -> int:
    """Return the dimension counted from the front; raise IndexError for one that x lacks."""
    found = arguments.integer(function, "dim", dim)
    count = max(1, x.dim())
    if not -count <= found < count:
        raise IndexError(f"{function}: dim: expected {-count} to {count - 1}, got {found}")
    return found % count


def checked_k(function: str, k: Any, least: int, most: Any) -> int:
    """Return k; raise unless it is an integer within bounds; None: of any size."""
    found = arguments.integer(function, "k", k, most=_MOST_K)
    if found < least or (most is not None and found > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}, the row's length"
        raise ValueError(f"{function}: k: expected {allowed}, got {found}")
    return found


def check_mask(function: str, mask: Any, x: Tensor) -> Tensor:
    """Return the mask in x's shape; raise unless it is bool, on x's device and broadcastable."""
    arguments.tensor(
        function, "mask", mask, dtypes=_BOOL, remedy="True where an element is seen, such as x > 0"
    )
    if mask.device != x.device:
        raise ValueError(
            f"{function}: mask: expected it on {x.device}, as x, got {mask.device}; move it there"
        )
    try:
        seen: Tensor = mask.expand(x.shape)
        return seen
    except RuntimeError:
        raise ValueError(
            f"{function}: mask: expected a shape that broadcasts to x's {tuple(x.shape)}, got "
            f"{tuple(mask.shape)}"
        ) from None


def check_offsets(function: str, offsets: Any, x: Tensor) -> None:
    """Raise unless offsets may bound segments of x; their values are not looked at."""
    arguments.tensor(function, "offsets", offsets, dtypes=_INT64)
    if offsets.dim() != 1 or not offsets.shape[0]:
        raise ValueError(
            f"{function}: offsets: expected [segments + 1], got {tuple(offsets.shape)}"
        )
    if x.dim() != 1:
        raise ValueError(
            f"{function}: x: expected one dimension that holds all segments, got {tuple(x.shape)}"
        )
    if offsets.device != x.device:
        raise ValueError(
            f"{function}: offsets: expected them on {x.device}, as x, got {offsets.device}"
        )


def check_bounds(x: Tensor, offsets: Tensor) -> None:
    """Raise ValueError unless the offsets rise within x. Waits for the device."""
    falls = bool((offsets.diff() < 0).any())
    if falls or int(offsets[0]) < 0 or int(offsets[-1]) > x.shape[0]:
        raise ValueError(
            f"segmented_topk: offsets: expected rising numbers from 0 to {x.shape[0]}, got "
            f"{offsets.tolist() if offsets.numel() <= 16 else 'others'}"
        )
