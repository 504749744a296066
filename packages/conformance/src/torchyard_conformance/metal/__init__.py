"""Kernels of Metal, run and checked without an Apple GPU: as C++, and by Clang."""

from __future__ import annotations

from torchyard_conformance.metal._buffers import Empty
from torchyard_conformance.metal._check import check
from torchyard_conformance.metal._errors import (
    CompilationError,
    CompilerMissingError,
    DeviceMissingError,
    UnsupportedSourceError,
)
from torchyard_conformance.metal._finding import KINDS, Finding
from torchyard_conformance.metal._opencl import run_by_opencl
from torchyard_conformance.metal._process import Launch
from torchyard_conformance.metal._run import Outcome, run

__all__ = [
    "KINDS",
    "CompilationError",
    "CompilerMissingError",
    "DeviceMissingError",
    "Empty",
    "Finding",
    "Launch",
    "Outcome",
    "UnsupportedSourceError",
    "check",
    "run",
    "run_by_opencl",
]
