"""Everything here runs under Triton's interpreter, which must be chosen before any jit function.

With TORCHYARD_TRITON_ON=opencl, which ``nox -s opencl`` sets, kernels are compiled for Intel's GPUs
and run by Intel's OpenCL for the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_ON_OPENCL = os.environ.get("TORCHYARD_TRITON_ON") == "opencl"
if not _ON_OPENCL:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """Start kernels on the stand-in."""
    if not _ON_OPENCL:
        yield
        return
    from torchyard_triton._launch import runs_by
    from torchyard_triton.opencl import run_on_opencl

    with runs_by(run_on_opencl):
        yield
