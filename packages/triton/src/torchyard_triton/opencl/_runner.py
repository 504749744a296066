"""``run_on_opencl``: a launch on tensors of the CPU, by Intel's OpenCL."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import torch

from torchyard_triton._launch import Launch
from torchyard_triton.architectures import ARCHITECTURES
from torchyard_triton.compiled._compilation import source_of, target_of
from torchyard_triton.compiled._older import add_missing
from torchyard_triton.opencl._spirv import for_cpu

__all__ = ["run_on_opencl"]

_BMG: Final = ARCHITECTURES["bmg"]
# What a CPU's OpenCL does not have.
_WITHOUT: Final = ("has_subgroup_matrix_multiply_accumulate", "has_subgroup_2d_block_io")


def run_on_opencl(launch: Launch) -> None:
    """Compile a launch for an Intel GPU without its matrix instruction, and run it on the CPU.

    Args:
        launch: of a jit function that is not interpreted, with tensors of the CPU.
    """
    import pyopencl

    if 0 in launch.grid:
        return
    _, queue = _device()
    compiled = _compiled(launch)
    kernel = _kernel(compiled.asm["spv"], compiled.metadata.name)
    place = 0
    for argument in _flat(launch.arguments):
        kernel.set_arg(place, _value(argument, pyopencl))
        place += 1
    if compiled.metadata.shared:
        kernel.set_arg(place, pyopencl.LocalMemory(compiled.metadata.shared))
    threads = compiled.metadata.num_warps * compiled.metadata.threads_per_warp
    grid = (*launch.grid, 1, 1)[:3]
    pyopencl.enqueue_nd_range_kernel(
        queue, kernel, (grid[0] * threads, *grid[1:]), (threads, 1, 1)
    ).wait()


@cache
def _device() -> tuple[Any, Any]:
    """Return the context and the queue of the first CPU."""
    import pyopencl

    for platform in pyopencl.get_platforms():
        for device in platform.get_devices(pyopencl.device_type.CPU):
            context = pyopencl.Context([device])
            return context, pyopencl.CommandQueue(context)
    raise RuntimeError(
        "run_on_opencl: expected an OpenCL device on the CPU, found none; pip install "
        "intel-opencl-rt, and name its library in a file of the folder OCL_ICD_VENDORS"
    )


def _compiled(launch: Launch) -> Any:
    import triton

    add_missing()
    source, options = source_of(launch)
    assert isinstance(_BMG.arch, tuple)
    facts = tuple((name, name not in _WITHOUT and value) for name, value in _BMG.arch)
    return triton.compile(source, target=target_of(replace(_BMG, arch=facts)), options=options)


@cache
def _kernel(code: bytes, name: str) -> Any:
    import pyopencl

    context, _ = _device()
    program = pyopencl.Program(context, for_cpu(code)).build()
    return getattr(program, name)


def _flat(arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Yield arguments as the kernel takes them: of a tuple each, and no constants."""
    for argument in arguments:
        if isinstance(argument, tuple):
            yield from _flat(argument)
        # As the compiler has it, a size of 1 is a constant.
        elif isinstance(argument, torch.Tensor | float) or argument != 1:
            yield argument


def _value(argument: Any, pyopencl: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        # Its memory, wherever it begins: the device reads the host's.
        first = ctypes.c_uint8.from_address(argument.data_ptr() or ctypes.addressof(_NOTHING))
        return pyopencl.SVM(np.ctypeslib.as_array(ctypes.pointer(first), (1,)))
    if isinstance(argument, float):
        return np.float32(argument)
    return np.int32(argument) if -(2**31) <= argument < 2**31 else np.int64(argument)


# What an empty tensor points to.
_NOTHING: Final = ctypes.c_uint8()
