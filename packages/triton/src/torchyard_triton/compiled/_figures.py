"""What a compiled kernel needs, read from its code, and what of it is a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torchyard_triton.architectures import Architecture

__all__ = [
    "Figures",
    "amd_figures",
    "amd_scalar_registers",
    "faults",
    "intel_figures",
    "nvidia_figures",
    "read_figures",
]


@dataclass(frozen=True, slots=True)
class Figures:
    """A compiled kernel.

    Attributes:
        architecture, kernel, program: what was compiled.
        registers: of each thread; 0 where the driver allocates them (Intel), as for spills.
        spills: bytes that a thread stores outside of registers (NVIDIA), or registers that it does
            not have (AMD).
        shared_memory: bytes of each program.
        matrix: the matrix instruction in the code; empty without one.
        seconds: that the compilation took.
        waves: that the four SIMDs of an AMD GPU's unit hold at once, of 32 on CDNA and 64 on RDNA;
            0 where that is not known here.
        scalar_registers: of each wave of an AMD GPU; 0 on others, which have none of their own.
    """

    architecture: str
    kernel: str
    program: str
    registers: int
    spills: int
    shared_memory: int
    matrix: str
    seconds: float
    waves: int = 0
    scalar_registers: int = 0


def nvidia_figures(log: str, code: str, architecture: Architecture) -> tuple[int, int, str]:
    """Return registers, bytes of spill stores, and the matrix instruction.

    Args:
        log: what ``ptxas -v`` prints, run with Triton's own options: others give other spills.
        code: the PTX.
    """
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores", log)
    if registers is None or spills is None:
        raise ValueError(f"nvidia_figures: log: expected what ptxas -v prints, got {log[-200:]!r}")
    return int(registers[1]), int(spills[1]), _matrix(code, architecture)


def amd_figures(code: str, architecture: Architecture) -> tuple[int, int, str]:
    """Return vector registers, spilled ones, and the matrix instruction.

    Args:
        code: the assembly with its metadata.
    """
    counts = [re.search(rf"\.{name}:\s+(\d+)", code) for name in ("vgpr_count", "vgpr_spill_count")]
    if counts[0] is None or counts[1] is None:
        raise ValueError("amd_figures: code: expected assembly with .vgpr_count, got none")
    return int(counts[0][1]), int(counts[1][1]), _matrix(code, architecture)


def amd_scalar_registers(code: str) -> int:
    """Return the scalar registers that assembly with its metadata needs."""
    count = re.search(r"\.sgpr_count:\s+(\d+)", code)
    if count is None:
        raise ValueError("amd_scalar_registers: code: expected assembly with .sgpr_count, got none")
    return int(count[1])


def intel_figures(code: str, architecture: Architecture) -> tuple[int, int, str]:
    """Return 0 registers, 0 spills, and the matrix instruction.

    Args:
        code: in Triton's dialect for GPUs: the driver makes instructions of SPIR-V on the device.
    """
    return 0, 0, _matrix(code, architecture)


_Reader = Callable[[str, str, Architecture], tuple[int, int, str]]
# Of each backend of Triton's: the stage whose code is read, and what reads it and ptxas' log.
_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "cuda": ("ptx", nvidia_figures),
    "hip": ("amdgcn", lambda _, code, architecture: amd_figures(code, architecture)),
    "xpu": ("ttgir", lambda _, code, architecture: intel_figures(code, architecture)),
}


def read_figures(
    log: str, code: Mapping[str, Any], architecture: Architecture
) -> tuple[int, int, str]:
    """Return registers, spills, and the matrix instruction.

    Args:
        log: what ``ptxas -v`` printed; empty where the backend has no ptxas.
        code: of each of Triton's stages, by its name.
    """
    stage, read = _READERS[architecture.backend]
    return read(log, code[stage], architecture)


def _matrix(code: str, architecture: Architecture) -> str:
    known = (architecture.matrix_instruction, architecture.small_matrix_instruction)
    return next((instruction for instruction in known if instruction in code), "")


def faults(
    figures: Figures,
    architecture: Architecture,
    *,
    spills: int = 0,
    matrix: bool = True,
    small: bool = False,
) -> list[str]:
    """Return what is wrong with a compiled kernel; empty where nothing is.

    A kernel that Triton compiled to nothing has no matrix instruction, and no other fault.

    Args:
        figures: of the kernel.
        architecture: what it was compiled for.
        spills: that its budget grants.
        matrix: whether it computes matrix products.
        small: whether its tiles are too small for the architecture's largest instruction.
    """
    where = f"{figures.architecture} {figures.kernel} {figures.program}"
    found = []
    if figures.shared_memory > architecture.shared_memory:
        found.append(
            f"{where}: {figures.shared_memory} bytes of shared memory, the architecture has "
            f"{architecture.shared_memory}"
        )
    if figures.spills > spills:
        found.append(f"{where}: spills {figures.spills}, its budget is {spills}")
    wanted = {architecture.matrix_instruction}
    if small:
        wanted.add(architecture.small_matrix_instruction)
    if matrix and figures.matrix not in wanted:
        names, got = " or ".join(sorted(wanted)), figures.matrix or "none"
        found.append(f"{where}: expected {names} in its code, got {got}")
    return found
