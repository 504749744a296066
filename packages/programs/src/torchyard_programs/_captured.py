"""What functions capture, as those who compute with it need it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["is_readable_on", "stored"]


def is_readable_on(tensor: Tensor, device: torch.device) -> bool:
    """Return whether what is computed on a device can read a tensor there.

    It lies there, or is a number on the CPU, which torch takes along.
    """
    at = tensor.device
    if at.type == device.type and (at.index == device.index or None in (at.index, device.index)):
        return True
    return at.type == "cpu" and not tensor.dim()


def stored(captured: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """Return tensors whose memory holds their values; None is none.

    torch's dispatcher sees to that for what an op is given, but not for a list that may be missing.
    """
    return tuple(
        [
            tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()
            for tensor in captured or ()
        ]
    )
