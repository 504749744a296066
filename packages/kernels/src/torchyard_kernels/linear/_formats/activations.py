"""The activations of a call as its weight's format has them multiplied."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.linear._formats.rounding import round_rows
from torchyard_kernels.linear.contract import LinearCall, Packed
from torchyard_kernels.linear.contract.quantised import option

__all__ = ["activations", "rounds"]


def rounds(call: LinearCall) -> bool:
    """Return whether the weight's options say that rows of x are rounded."""
    return isinstance(call.weight, Packed) and option(call.weight.spec, "activation") != 0


def activations(call: LinearCall, dtype: torch.dtype) -> Tensor:
    """Return x in a dtype, which its rows are rounded in where the weight's options say so."""
    x = call.x.to(dtype)
    return round_rows(x) if rounds(call) else x
