"""What of an accelerator's architecture kernels are held to, without the accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["ARCHITECTURES", "Architecture", "names_of"]

_WAVE64: Final = 64


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture as Triton compiles for it.

    Attributes:
        name: ``sm_90``, ``gfx942`` ...
        backend: Triton's: ``cuda``, ``hip`` or ``xpu``.
        arch: Triton's name: the capability as a number, or the AMD target; for Intel facts of the
            device.
        lanes: threads that execute together.
        shared_memory: bytes that one program can have.
        programs: that one launch can have, of 512 threads.
        matrix_instruction: what is in the code of every matrix product.
        small_matrix_instruction: what may be there instead where tiles have fewer than 64 rows.
        like: another one, whose tiles and budgets it has where it has none of its own; or empty.
        unit_memory: bytes of shared memory that the programs of one unit share, which has four
            SIMDs; 0 where that is not known here.
    """

    name: str
    backend: str
    arch: int | str | tuple[tuple[str, object], ...]
    lanes: int
    shared_memory: int
    programs: int
    matrix_instruction: str
    small_matrix_instruction: str
    like: str = ""
    unit_memory: int = 0


def _nvidia(capability: int, kilobytes: int, instruction: str) -> Architecture:
    name, memory = f"sm_{capability}", kilobytes * 1024
    return Architecture(name, "cuda", capability, 32, memory, 2**31 - 1, instruction, "mma.sync")


def _amd(
    arch: str, lanes: int, kilobytes: int, instruction: str, *, like: str = ""
) -> Architecture:
    programs = (2**32 - 1) // 512
    memory = kilobytes * 1024
    # A compute unit has four SIMDs of 64 lanes, or a work-group processor four of 32.
    unit = memory if lanes == _WAVE64 else 2 * memory
    return Architecture(
        *(arch, "hip", arch, lanes, memory, programs, instruction, instruction, like, unit)
    )


def _intel(name: str) -> Architecture:
    facts: tuple[tuple[str, object], ...] = (
        ("architecture", 0),
        ("max_work_group_size", 1024),
        ("sub_group_sizes", (16, 32)),
        ("has_fp64", True),
        ("has_subgroup_matrix_multiply_accumulate", True),
        ("has_subgroup_2d_block_io", True),
    )
    instruction = "triton_intel_gpu.dpas"
    return Architecture(name, "xpu", facts, 16, 128 * 1024, 2**31 - 1, instruction, instruction)


# Shared memory: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability" (per thread block); AMD's architecture manuals (LDS per work group); Intel's (local
# memory per work group).
# AMD's units: its instruction set manuals, "CDNA 3" and "RDNA 3", chapters on LDS and on the modes
# of work groups; kernels run in the mode of a work-group processor, LLVM's default for RDNA.
# Programs: in the same table, along the first axis of a grid; HIP counts threads instead
# (hipModuleLaunchKernel: fewer than 2^32).
_ALL: Final = (
    _nvidia(80, 163, "mma.sync"),
    _nvidia(86, 99, "mma.sync"),
    _nvidia(89, 99, "mma.sync"),
    _nvidia(90, 227, "wgmma.mma_async"),
    _nvidia(100, 227, "tcgen05.mma"),
    _nvidia(103, 227, "tcgen05.mma"),
    _nvidia(120, 99, "mma.sync"),
    _amd("gfx90a", 64, 64, "v_mfma", like="gfx942"),
    _amd("gfx942", 64, 64, "v_mfma"),
    _amd("gfx950", 64, 160, "v_mfma"),
    _amd("gfx1100", 32, 64, "v_wmma"),
    _amd("gfx1151", 32, 64, "v_wmma", like="gfx1100"),
    _amd("gfx1200", 32, 64, "v_wmma", like="gfx1201"),
    _amd("gfx1201", 32, 64, "v_wmma"),
    _intel("pvc"),
    _intel("lnl"),
    _intel("bmg"),
)
ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {item.name: item for item in _ALL}
)


def names_of(architecture: str) -> tuple[str, ...]:
    """Return the names under which tables may hold an architecture: its own, then its like."""
    known = ARCHITECTURES.get(architecture)
    return (architecture, known.like) if known is not None and known.like else (architecture,)
