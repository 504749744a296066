"""Everything here runs under Triton's interpreter, which must be chosen before any jit function.

TORCHYARD_TRITON_ON names something else: ``opencl``, which ``nox -s opencl`` sets, where kernels
are compiled for Intel's GPUs and run by Intel's OpenCL for the CPU; or the type of a device that
is there, such as ``cuda``, where the tests' tensors are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

_ON = os.environ.get("TORCHYARD_TRITON_ON", "")
if not _ON:
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """Start kernels on what was chosen."""
    with _chosen():
        yield


def _chosen() -> AbstractContextManager[object]:
    if not _ON:
        return nullcontext()
    if _ON == "opencl":
        from torchyard_triton._launch import runs_by
        from torchyard_triton.opencl import run_on_opencl

        return runs_by(run_on_opencl)
    from packages.triton.tests.default_device import TensorsOn

    return TensorsOn(_ON)
