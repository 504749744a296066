"""Triton kernels from recorded programs, which plugins of accelerators share."""

from __future__ import annotations

from torchyard_triton._implementations import implementations
from torchyard_triton._vendor import Vendor
from torchyard_triton.architectures import Architecture
from torchyard_triton.lowering import LoweredProgram, lower

__all__ = ["Architecture", "LoweredProgram", "Vendor", "implementations", "lower"]
