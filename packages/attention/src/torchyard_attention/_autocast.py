"""Query, key and value under torch.autocast."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard import arguments

__all__ = ["autocast_inputs"]


def autocast_inputs(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value in autocast's dtype where it is on for query's device.

    As torch's own attentions do: tensors of any floating point dtype but float64 are cast, each by
    itself, and gradients come back in their own dtypes. Where autocast is off, the same tensors.
    """
    of = "autocast_inputs"
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        arguments.instance(of, name, tensor, Tensor, "a tensor")
    device = query.device.type
    # torch raises for a device that has no autocast, such as that of tensors without data.
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return query, key, value
    dtype = torch.get_autocast_dtype(device)
    return _cast(query, dtype), _cast(key, dtype), _cast(value, dtype)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype == torch.float64 or not tensor.is_floating_point():
        return tensor
    return tensor.to(dtype)
