"""Recorded programs as the source of Triton functions."""

from __future__ import annotations

from torchyard_triton.lowering._modules import module_of
from torchyard_triton.lowering._program import (
    LoweredProgram,
    LoweredSite,
    captured_values,
    lower,
)

__all__ = [
    "LoweredProgram",
    "LoweredSite",
    "captured_values",
    "lower",
    "module_of",
]
