"""A launch compiled for a target by Triton's compiler, without a device."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import torch

from torchyard_triton._launch import Launch
from torchyard_triton.architectures import Architecture
from torchyard_triton.compiled._cache import FiguresCache, digest
from torchyard_triton.compiled._figures import Figures, amd_scalar_registers, read_figures
from torchyard_triton.compiled._occupancy import unit_waves

__all__ = ["compile_launch", "source_of", "target_of"]

_DTYPES: Final = {
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
}
_OPTIONS: Final = ("num_warps", "num_stages")


def compile_launch(
    launch: Launch,
    architecture: Architecture,
    name: str,
    program: str,
    cache: FiguresCache,
) -> Figures:
    """Compile a launch as Triton would at its first start on an architecture.

    As there, pointers and sizes that 16 divides are known to be so, and sizes of 1 are constants.

    Args:
        launch: of a jit function that is not interpreted.
        architecture: the target.
        name, program: of the specimen, for the figures.
        cache: what was compiled before is read from it, with the seconds that it took then.
    """
    import triton

    source, options = source_of(launch)
    target = target_of(architecture)
    # Newer versions of Triton turn it off where nobody asks.
    options["enable_fp_fusion"] = True
    key = digest(source.hash(), str(target), str(options), triton.__version__)
    known = cache.read(key)
    if known is not None:
        return replace(known, kernel=name, program=program)
    log = io.StringIO()
    begun = time.perf_counter()
    with _logged(), contextlib.redirect_stdout(log):
        kernel = triton.compile(source, target=target, options=options)
    seconds = time.perf_counter() - begun
    found = read_figures(log.getvalue(), kernel.asm, architecture)
    shared = kernel.metadata.shared
    assembly = str(kernel.asm.get("amdgcn", ""))
    waves = unit_waves(assembly, architecture, shared, kernel.metadata.num_warps)
    scalars = amd_scalar_registers(assembly) if assembly else 0
    figures = Figures(
        *(architecture.name, name, program, *found[:2], shared, found[2], seconds, waves, scalars)
    )
    cache.write(key, figures)
    return figures


def source_of(launch: Launch) -> tuple[Any, dict[str, Any]]:
    """Return what Triton compiles of a launch, and the compiler's options."""
    from triton.compiler import ASTSource

    names = launch.kernel.arg_names
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for index, argument in enumerate(launch.arguments):
        signature[names[index]] = _typed(argument, (index,), constants, attributes)
    for constant, value in launch.constants.items():
        if constant not in _OPTIONS:
            signature[constant] = "constexpr"
            constants[(names.index(constant),)] = value
    source = ASTSource(
        fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes
    )
    return source, {name: launch.constants[name] for name in _OPTIONS if name in launch.constants}


def target_of(architecture: Architecture) -> Any:
    """Return Triton's target."""
    from triton.backends.compiler import GPUTarget

    arch = architecture.arch
    found: Any = dict(arch) if isinstance(arch, tuple) else arch
    return GPUTarget(architecture.backend, found, architecture.lanes)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Let ptxas print what it allocates, of kernels that were compiled before too."""
    import triton

    if not hasattr(triton, "knobs"):
        # Before 3.4, which is for Intel alone here.
        yield
        return
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope():
        triton.knobs.nvidia.dump_ptxas_log = True
        # A kernel from the cache would leave no log.
        triton.knobs.compilation.always_compile = True
        yield


def _typed(
    argument: Any,
    path: tuple[int, ...],
    constants: dict[tuple[int, ...], Any],
    attributes: dict[tuple[int, ...], Any],
) -> Any:
    """Return an argument's type in Triton's spelling; note what is known of its value."""
    if isinstance(argument, tuple):
        return tuple(
            _typed(part, (*path, place), constants, attributes)
            for place, part in enumerate(argument)
        )
    if isinstance(argument, torch.Tensor):
        attributes[path] = [["tt.divisibility", 16]]
        return f"*{_DTYPES[argument.dtype]}"
    if isinstance(argument, float):
        return "fp32"
    if argument == 1:
        constants[path] = 1
        return "constexpr"
    if argument % 16 == 0:
        attributes[path] = [["tt.divisibility", 16]]
    return "i32" if -(2**31) <= argument < 2**31 else "i64"
