"""The casts of a call's arguments under torch.autocast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["cast", "is_cast"]


def is_cast(x: object) -> bool:
    """Return whether autocast is on for a call of this first argument.

    Ask ``is_dynamo_compiling() or is_autocast_enabled_anywhere()`` first: the second takes a third
    of the time, and Dynamo does not know it.
    """
    return isinstance(x, Tensor) and torch.is_autocast_enabled(x.device.type)


def cast(dtype: torch.dtype, *values: Any) -> tuple[Any, ...]:
    """Return the tensors among values in a dtype; float64 stays, as where torch casts."""
    return tuple(_cast(value, dtype) for value in values)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return value if value.dtype == torch.float64 else value.to(dtype)
