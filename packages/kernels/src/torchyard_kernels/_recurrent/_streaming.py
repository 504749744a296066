"""Calls with packed weights that are like one that was decided before."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._recurrent._ops import CALLS
from torchyard_kernels._recurrent._packed import PackedRecurrent
from torchyard_kernels.contracts.recurrent import RecurrentKind

__all__ = ["served"]

_deterministic = torch._C._get_deterministic_algorithms


def served(
    kind: RecurrentKind,
    input: Tensor,
    hidden: Tensor | None,
    cell: Tensor | None,
    weights: object,
    batch_first: bool,
) -> tuple[Any, Any] | None:
    """Return output and state, straight from the kernel; None, without an effect, for other calls.

    Of the arguments nothing is taken for granted; that there is nothing else to a call, such as
    lengths, is for the caller to know. One step of a small layer takes less time than its
    description does.
    """
    if not isinstance(weights, PackedRecurrent) or weights.kind is not kind or hidden is None:
        return None
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or _deterministic():
        return None
    packed = weights.latest()
    if packed is None or (batch_first and input.ndim != 3):
        return None
    found = CALLS.served(packed, input.transpose(0, 1) if batch_first else input, hidden, cell)
    if found is None:
        return None
    output, state = found
    return output.transpose(0, 1) if batch_first else output, state
