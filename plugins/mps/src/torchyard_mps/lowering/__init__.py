"""Recorded programs as the source of Metal functions."""

from __future__ import annotations

from torchyard_mps.lowering._emission import TYPES
from torchyard_mps.lowering._program import (
    LoweredProgram,
    LoweredSite,
    header,
    layout_values,
    lower,
    type_of_dtype,
)

__all__ = [
    "TYPES",
    "LoweredProgram",
    "LoweredSite",
    "header",
    "layout_values",
    "lower",
    "type_of_dtype",
]
