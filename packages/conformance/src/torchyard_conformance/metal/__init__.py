"""Kernels of Metal, run without an Apple GPU: compiled as C++, every access checked."""

from __future__ import annotations

from torchyard_conformance.metal._buffers import Empty
from torchyard_conformance.metal._errors import (
    CompilationError,
    CompilerMissingError,
    UnsupportedSourceError,
)
from torchyard_conformance.metal._finding import KINDS, Finding
from torchyard_conformance.metal._process import Launch
from torchyard_conformance.metal._run import Outcome, run

__all__ = [
    "KINDS",
    "CompilationError",
    "CompilerMissingError",
    "Empty",
    "Finding",
    "Launch",
    "Outcome",
    "UnsupportedSourceError",
    "run",
]
