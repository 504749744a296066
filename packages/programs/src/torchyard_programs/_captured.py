"""Captured tensors: whether a device can read them, and their values in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard.torch_compat import is_zero_tensor

__all__ = ["is_readable_on", "lies_on", "stored"]

_LISTS: Final = (list, tuple)


def is_readable_on(tensor: Tensor, device: torch.device) -> bool:
    """Return whether a computation on a device can read a tensor.

    True for a tensor on that device, and for a 0-dimensional one on the CPU.
    """
    arguments.instance("is_readable_on", "tensor", tensor, Tensor)
    return lies_on(tensor, arguments.device("is_readable_on", "device", device))


def lies_on(tensor: Tensor, device: torch.device) -> bool:
    """:func:`is_readable_on` for arguments that were checked."""
    at = tensor.device
    if at.type == device.type and (at.index == device.index or None in (at.index, device.index)):
        return True
    return at.type == "cpu" and not tensor.dim()


def stored(captured: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """Return tensors whose memory holds their values: not lazily negated, zeros stored.

    torch's dispatcher does that for an op's tensors, but not for those of an optional list.
    """
    if captured is None:
        return ()
    if not isinstance(captured, _LISTS):
        raise arguments.wrong_kind("stored", "captured", "a list or a tuple of tensors", captured)
    return tuple([_stored(tensor) for tensor in captured]) if captured else ()


def _stored(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise arguments.wrong_kind("stored", "captured", "tensors", tensor)
    return tensor.clone() if is_zero_tensor(tensor) else tensor.resolve_neg()
