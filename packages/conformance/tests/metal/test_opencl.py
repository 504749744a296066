"""What Clang, LLVM and a device of OpenCL compute of Metal is what torch computes.

Without a device, which ``nox -s opencl`` brings, the kernels are compiled and not run.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from packages.conformance.tests.metal.functions_suite import SOURCE, FunctionsSuite
from torchyard_conformance.metal import (
    DeviceMissingError,
    Empty,
    UnsupportedSourceError,
    check,
    run_by_opencl,
)
from torchyard_conformance.metal._clang import clang
from torchyard_conformance.metal._source._opencl import program

_MAGIC: Final = (0x07230203).to_bytes(4, "little")
_HAS_DEVICE: Final = os.environ.get("TORCHYARD_METAL_ON") == "opencl"
_X: Final = torch.arange(4.0)


@pytest.mark.skipif(not _HAS_DEVICE, reason="needs a device of OpenCL; nox -s opencl has one")
class TestOpenCL(FunctionsSuite):
    def outputs(
        self,
        kernel: str,
        grid: int | tuple[int, ...],
        threads: int | tuple[int, ...],
        buffers: Sequence[Any] | Mapping[Any, Any],
        group_memory: Mapping[int, int] | None = None,
    ) -> Mapping[str, Tensor]:
        return run_by_opencl(SOURCE, kernel, grid, threads, buffers, group_memory=group_memory)


def test_the_functions_are_metal() -> None:
    assert check(SOURCE) == ()


def test_clang_makes_spirv_with_each_kernel() -> None:
    text, kernels = program(SOURCE)
    code = clang().compiled(text)
    assert code[:4] == _MAGIC
    assert len(kernels) >= 8
    assert all(name.encode() + b"\0" in code for name in kernels)


def test_positions_are_computed_where_a_kernel_begins_on_the_same_lines() -> None:
    source = (
        "kernel void f(device uint* y [[buffer(0)]],\n"
        "              uint2 g [[threadgroup_position_in_grid]],\n"
        "              ushort i [[thread_index_in_simdgroup]]) {\n"
        "  y[g.x] = i;\n}\n"
    )
    lines = program(source)[0].splitlines()
    assert lines[0].endswith("kernel void f(device uint* y [[buffer(0)]])")
    assert "const uint2 g = (uint2)(uint(::torchyard_opencl::group_id(0))" in lines[2]
    assert "const ushort i = ushort(::torchyard_opencl::lane());" in lines[2]
    assert lines[3] == "  y[g.x] = i;"


def test_without_pyopencl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl = importlib.import_module("torchyard_conformance.metal._opencl")
    opencl._device.cache_clear()
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceMissingError, match=r"not installed; .*conformance\[opencl\]"):
        run_by_opencl(
            SOURCE, "halves", 1, 4, [_X.half(), _X.half(), *[Empty((4,), torch.float16)] * 3]
        )


def test_a_kernel_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"kernel: expected one of \['greatest', .* got 'none'"):
        run_by_opencl(SOURCE, "none", 1, 4, [_X])
    with pytest.raises(UnsupportedSourceError, match="textures"):
        run_by_opencl("texture2d<float> t;", "none", 1, 4, [_X])
