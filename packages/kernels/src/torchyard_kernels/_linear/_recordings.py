"""Programs of a layer's functions, kept where a function can be known to do the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels._linear._function import NAMES, Recorded, record, recording_of
from torchyard_programs import Recordings

__all__ = ["kept", "recorded"]


def recorded(function: Callable[..., Tensor], role: str, gated: bool, x: Tensor) -> Recorded:
    """Record a function, or take what was kept of one that does the same; arguments as `record`."""
    if torch.compiler.is_compiling():
        return record(function, role, gated, x)
    names = NAMES[role, gated]
    text, captured = _RECORDINGS.recorded(function, x.device, role, names, x.dtype)
    return Recorded(text, tuple(captured), names)


def kept(
    function: Callable[..., Tensor], role: str, gated: bool, x: Tensor
) -> tuple[str, tuple[Tensor, ...]] | None:
    """Return text and captured tensors of a function that does the same; None where none is kept.

    A :class:`Recorded` would take as long to make as the look-up does.
    """
    return _RECORDINGS.kept(function, role, NAMES[role, gated], x.dtype)


def _record(
    function: Callable[..., Tensor],
    device: torch.device,
    role: str,
    names: tuple[str, ...],
    dtype: torch.dtype,
) -> tuple[str, list[Tensor]]:
    return recording_of(function, role, names, dtype, device)


_RECORDINGS: Final = Recordings(_record)
