"""What is compiled ahead of time: every kernel, with programs and dtypes that differ in needs."""

from __future__ import annotations

from torchyard_triton.compiled.specimens._attention import PROGRAMS
from torchyard_triton.compiled.specimens._kernels import ATTENTION_PROGRAMS, specimens
from torchyard_triton.compiled.specimens._specimen import Specimen

__all__ = ["ATTENTION_PROGRAMS", "PROGRAMS", "Specimen", "specimens"]
