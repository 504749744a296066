"""What functions capture, as kernels read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

__all__ = ["check_devices", "stored"]


def stored(captured: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    """Return tensors whose memory holds their values; None is none.

    The dispatcher sees to that for what it is given, but not for lists that an op may lack.
    """
    return tuple(
        [
            tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()
            for tensor in captured or ()
        ]
    )


def check_devices(function: str, device: torch.device, tensors: Iterable[Tensor]) -> None:
    """Raise ValueError unless tensors lie on a device; on the CPU those of no dimension may too."""
    for tensor in tensors:
        if tensor.device != device and (tensor.dim() or not tensor.is_cpu):
            raise ValueError(
                f"{function}: expected all tensors on one device, got {device} and "
                f"{tensor.device}; move one"
            )
