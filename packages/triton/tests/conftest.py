"""Everything here runs under Triton's interpreter, which must be chosen before any jit function.

TORCHYARD_TRITON_ON names something else: ``opencl``, which ``nox -s opencl`` sets, where kernels
are compiled for Intel's GPUs and run by Intel's OpenCL for the CPU; or the type of a device that
is there, such as ``cuda``, where the tests' tensors are, also those that their modules hold. On the
device ``simulated`` of this tree (with TORCHYARD_PRIVATEUSE1=simulated) kernels are interpreted: a
test that names the CPU where it means the suite's device fails there as on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

_ON = os.environ.get("TORCHYARD_TRITON_ON", "")
_ON_DEVICE = _ON not in ("", "opencl")
if _ON in ("", "simulated"):
    os.environ["TRITON_INTERPRET"] = "1"
if _ON_DEVICE:
    from packages.triton.tests.default_device import TensorsOn

    TensorsOn(_ON).__enter__()


@pytest.hookimpl
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave mutants out on a device: what reads anywhere ends the device for its process."""
    if _ON_DEVICE:
        reason = "a mutant may read anywhere, which ends the device for its process"
        for item in items:
            if "mutant" in item.name:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def device() -> torch.device:
    """Return where the tests' tensors are."""
    return torch.device(_ON if _ON_DEVICE else "cpu")


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    """Start kernels on the stand-in that was chosen."""
    if _ON != "opencl":
        yield
        return
    from torchyard_triton._launch import runs_by
    from torchyard_triton.opencl import run_on_opencl

    with runs_by(run_on_opencl):
        yield
