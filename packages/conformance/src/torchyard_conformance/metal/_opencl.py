"""``run_by_opencl``: a kernel of Metal by Clang, LLVM and a device of OpenCL, a second opinion."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_conformance.metal._buffers import Region, buffers_of, regions_of
from torchyard_conformance.metal._clang import clang
from torchyard_conformance.metal._errors import CompilationError, DeviceMissingError
from torchyard_conformance.metal._judgement import tensor_of
from torchyard_conformance.metal._run import group_memory_of, sizes_of
from torchyard_conformance.metal._source._kernels import Kernel
from torchyard_conformance.metal._source._opencl import program

__all__ = ["run_by_opencl"]

_OF: Final = "metal.run_by_opencl"
_WIDTH: Final = 32
_REMEDY: Final = (
    "install one, such as Intel's for processors (pip install torchyard-conformance[opencl], and "
    "set OCL_ICD_VENDORS to a folder with an .icd file that names its libintelocl.so)"
)


def run_by_opencl(
    source: str,
    kernel: str,
    grid: int | Sequence[int],
    threads: int | Sequence[int],
    buffers: Sequence[Any] | Mapping[Any, Any],
    *,
    group_memory: Mapping[int, int] | None = None,
) -> Mapping[str, Tensor]:
    """Run a kernel of Metal on a device of OpenCL, and return what it wrote.

    The source is C++ for OpenCL to Clang, as in :func:`check`, which makes SPIR-V of it; simdgroups
    are sub-groups of 32. Of the shim of :func:`run` nothing is used, so that what both compute is
    computed by two implementations of Metal's types and functions. No access is checked.

    Args:
        source: Metal Shading Language.
        kernel: the name of one of its kernels.
        grid: threadgroups, by up to three dimensions.
        threads: threads of a threadgroup, by up to three dimensions.
        buffers: as of :func:`run`. What a buffer that is ``Empty`` holds before is bytes of 255.
        group_memory: index -> bytes of threadgroup memory that is a parameter.

    Returns:
        Buffers that the kernel may write, by the parameter's name.

    Raises:
        CompilationError: the source does not compile.
        CompilerMissingError: there is no Clang.
        DeviceMissingError: there is no device of OpenCL that runs it.
        UnsupportedSourceError: it uses a part of Metal that C++ for OpenCL lacks.
        TypeError, ValueError: an argument does not fit; names it.
    """
    source = arguments.text(_OF, "source", source)
    sizes = sizes_of("grid", grid), sizes_of("threads", threads)
    text, kernels = _program_of(source)
    found = kernels.get(kernel)
    if found is None:
        raise arguments.wrong_value(_OF, "kernel", f"one of {sorted(kernels)}", repr(kernel))
    regions = regions_of(found, buffers_of(found, buffers))
    contents = _launched(text, found, sizes, regions, dict(group_memory_of(found, group_memory)))
    return {
        place.parameter.name: tensor_of(place, content)
        for region, content in zip(regions, contents, strict=True)
        for place in region.places
        if place.like is not None and not place.parameter.reads_only
    }


_program_of = lru_cache(maxsize=256)(program)


def _launched(
    text: str,
    kernel: Kernel,
    sizes: tuple[tuple[int, int, int], tuple[int, int, int]],
    regions: list[Region],
    group_memory: dict[int, int],
) -> list[bytes]:
    """Return what the regions hold after a launch."""
    queue = _device()[1]
    import pyopencl

    launched = pyopencl.Kernel(_built(text), kernel.function)
    memory = [_aligned(region) for region in regions]
    of_buffer = {
        place.parameter.index: pyopencl.SVM(held[place.offset :])
        for held, region in zip(memory, regions, strict=True)
        for place in region.places
    }
    given = [part for part in kernel.parameters if part.attribute in ("buffer", "threadgroup")]
    for at, part in enumerate(given):
        is_buffer = part.attribute == "buffer"
        launched.set_arg(
            at,
            of_buffer[part.index] if is_buffer else pyopencl.LocalMemory(group_memory[part.index]),
        )
    grid, threads = sizes
    every = tuple(count * size for count, size in zip(grid, threads, strict=True))
    pyopencl.enqueue_nd_range_kernel(queue, launched, every, threads)
    queue.finish()
    return [held.tobytes() for held in memory]


def _aligned(region: Region) -> Any:
    """Return a region's bytes in memory, where an address misses a multiple of 64 as it did."""
    size = len(region.content)
    whole = torch.empty(size + 128, dtype=torch.uint8)
    start = -whole.data_ptr() % 64 + region.skew
    held = whole[start : start + size]
    held.copy_(torch.frombuffer(bytearray(region.content), dtype=torch.uint8))
    return held.numpy()


@cache
def _device() -> tuple[Any, Any]:
    """Return the context and a queue of the first device that has what kernels need."""
    try:
        import pyopencl
    except ImportError as fault:
        raise DeviceMissingError(f"{_OF}: pyopencl is not installed; {_REMEDY}") from fault
    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as fault:
        raise DeviceMissingError(f"{_OF}: OpenCL has no platform ({fault}); {_REMEDY}") from fault
    shares = pyopencl.device_svm_capabilities.FINE_GRAIN_SYSTEM
    for device in (one for platform in platforms for one in platform.get_devices()):
        extensions = device.extensions.split()
        if (
            "cl_khr_il_program" in extensions
            and "cl_intel_required_subgroup_size" in extensions
            and device.svm_capabilities & shares
        ):
            context = pyopencl.Context([device])
            return context, pyopencl.CommandQueue(context)
    names = [platform.name for platform in platforms]
    raise DeviceMissingError(
        f"{_OF}: expected a device that takes SPIR-V, shares this process's memory and has "
        f"sub-groups of {_WIDTH}; {names} has none; {_REMEDY}"
    )


@lru_cache(maxsize=256)
def _built(text: str) -> Any:
    context, _ = _device()
    import pyopencl

    made = pyopencl.Program(context, clang().compiled(text))
    try:
        with warnings.catch_warnings():
            # The device says that it compiled it.
            warnings.simplefilter("ignore", pyopencl.CompilerWarning)
            return made.build()
    except pyopencl.RuntimeError as fault:
        raise CompilationError(f"{_OF}: source: the device refuses its SPIR-V: {fault}") from fault
