"""The activations of a call, rounded where the options of its weight say so."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.rounding import round_rows
from torchyard_kernels.linear.contract import LinearCall, Packed
from torchyard_kernels.linear.contract.quantised import option

__all__ = ["activations", "rounds"]


def rounds(call: LinearCall) -> bool:
    """Return whether rows of x are rounded, by the weight's options."""
    return isinstance(call.weight, Packed) and option(call.weight.spec, "activation") != 0


def activations(call: LinearCall, dtype: torch.dtype) -> Tensor:
    """Return x in a dtype, with rows rounded where the weight's options say so."""
    x = call.x.to(dtype)
    return round_rows(x) if rounds(call) else x
