"""A rank's device, and values on it."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import torch
from torch import Tensor

__all__ = ["device_of_rank", "placed"]


def device_of_rank(kind: str, rank: int) -> torch.device:
    """Return a rank's device, and make it the current one of its process.

    Args:
        kind: torch device type; of an accelerator each rank has another device.
        rank: of the world, all of whose ranks are on this machine.

    Raises:
        ValueError: the machine has too few of them.
    """
    if kind == "cpu":
        return torch.device(kind)
    if not hasattr(torch, kind):
        # One of this tree's, which takes part where it is asked for.
        importlib.import_module(f"torchyard_{kind}").load()
    count = torch.get_device_module(kind).device_count()
    if rank >= count:
        raise ValueError(
            f"device: expected a device of type {kind!r} for each rank, got {count} for rank "
            f"{rank}; ask for {count} ranks at most"
        )
    torch.accelerator.set_device_index(rank)
    return torch.device(kind, rank)


def placed(value: Any, device: torch.device) -> Any:
    """Return a value with its tensors on a device.

    Args:
        value: a tensor, a list, tuple, dict or dataclass of such values, or anything else, which
            stays as it is.
        device: for the tensors.
    """
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device)
    if isinstance(value, list | tuple):
        items = [placed(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: placed(item, device) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(
            value, **{name: placed(getattr(value, name), device) for name in fields}
        )
    return value
