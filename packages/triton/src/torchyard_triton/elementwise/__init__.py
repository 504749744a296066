"""Recorded programs over elements of tensors, in the dtypes that the contracts ask for."""

from __future__ import annotations

from torchyard_triton.elementwise._program import ElementProgram, element_program

__all__ = ["ElementProgram", "element_program"]
