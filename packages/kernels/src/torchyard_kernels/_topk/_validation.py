"""What topk's functions refuse."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.contracts.topk import DTYPES

__all__ = ["check_bounds", "check_k", "check_mask", "check_offsets", "check_tensor", "dim_of"]

_DTYPES: Final = frozenset(getattr(torch, name) for name in DTYPES)


def check_tensor(function: str, x: Any) -> None:
    """Raise TypeError unless x is a tensor of a dtype that is ordered here."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: x: expected a tensor, got {type(x).__name__}")
    if x.dtype not in _DTYPES:
        raise TypeError(
            f"{function}: x: expected one of {', '.join(DTYPES)}, got {str(x.dtype)[6:]}; cast x, "
            "a bool one to uint8"
        )
    if x.layout != torch.strided:
        raise TypeError(f"{function}: x: expected a dense tensor, got {x.layout}; convert it")


def dim_of(function: str, x: Tensor, dim: Any) -> int:
    """Return the dimension counted from the front; raise IndexError for one that x lacks."""
    if not isinstance(dim, int) or isinstance(dim, bool):
        raise TypeError(f"{function}: dim: expected an integer, got {type(dim).__name__}")
    count = max(1, x.dim())
    if not -count <= dim < count:
        raise IndexError(f"{function}: dim: expected {-count} to {count - 1}, got {dim}")
    return dim % count


def check_k(function: str, k: Any, least: int, most: Any) -> None:
    """Raise unless k is an integer within bounds; None: of any size."""
    if not isinstance(k, int | torch.SymInt) or isinstance(k, bool):
        raise TypeError(f"{function}: k: expected an integer, got {type(k).__name__}")
    if k < least or (most is not None and k > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}, the row's length"
        raise ValueError(f"{function}: k: expected {allowed}, got {k}")


def check_mask(function: str, mask: Any, x: Tensor) -> Tensor:
    """Return the mask in x's shape; raise unless it is bool, on x's device and broadcastable."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = str(mask.dtype)[6:] if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"{function}: mask: expected a bool tensor, True where an element is seen, got {got}"
        )
    if mask.device != x.device:
        raise ValueError(
            f"{function}: mask: expected it on {x.device}, as x, got {mask.device}; move it there"
        )
    try:
        return mask.expand(x.shape)
    except RuntimeError:
        raise ValueError(
            f"{function}: mask: expected a shape that broadcasts to x's {tuple(x.shape)}, got "
            f"{tuple(mask.shape)}"
        ) from None


def check_offsets(function: str, offsets: Any, x: Tensor) -> None:
    """Raise unless offsets may bound segments of x; their values are not looked at."""
    if not isinstance(offsets, Tensor) or offsets.dtype != torch.int64:
        got = str(offsets.dtype)[6:] if isinstance(offsets, Tensor) else type(offsets).__name__
        raise TypeError(f"{function}: offsets: expected an int64 tensor, got {got}")
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
