"""Triton kernels from recorded programs, which plugins of accelerators share."""

from __future__ import annotations

from torchyard_triton.lowering import LoweredProgram, UnsupportedProgramError, lower

__all__ = ["LoweredProgram", "UnsupportedProgramError", "lower"]
