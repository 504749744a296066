"""What a compiled kernel needs, read from its code, and what of it is a fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torchyard_triton.architectures import Architecture

__all__ = ["Figures", "amd_figures", "faults", "nvidia_figures", "read_figures"]


@dataclass(frozen=True, slots=True)
class Figures:
    """A compiled kernel.

    Attributes:
        architecture, kernel, program: what was compiled.
        registers: of each thread.
        spills: bytes that a thread stores outside of registers (NVIDIA), or registers that it does
            not have (AMD).
        shared_memory: bytes of each program.
        matrix: whether the architecture's matrix instruction is in the code.
        seconds: that the compilation took.
    """

    architecture: str
    kernel: str
    program: str
    registers: int
    spills: int
    shared_memory: int
    matrix: bool
    seconds: float


def nvidia_figures(log: str, code: str, architecture: Architecture) -> tuple[int, int, bool]:
    """Return registers, bytes of spill stores, and whether the matrix instruction is there.

    Args:
        log: what ``ptxas -v`` prints, run with Triton's own options: others give other spills.
        code: the PTX.
    """
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores", log)
    if registers is None or spills is None:
        raise ValueError(f"nvidia_figures: log: expected what ptxas -v prints, got {log[-200:]!r}")
    return int(registers[1]), int(spills[1]), _has_matrix(code, architecture)


def amd_figures(code: str, architecture: Architecture) -> tuple[int, int, bool]:
    """Return vector registers, spilled ones, and whether the matrix instruction is there.

    Args:
        code: the assembly with its metadata.
    """
    counts = [re.search(rf"\.{name}:\s+(\d+)", code) for name in ("vgpr_count", "vgpr_spill_count")]
    if counts[0] is None or counts[1] is None:
        raise ValueError("amd_figures: code: expected assembly with .vgpr_count, got none")
    return int(counts[0][1]), int(counts[1][1]), _has_matrix(code, architecture)


_Reader = Callable[[str, str, Architecture], tuple[int, int, bool]]
# Of each backend of Triton's: the stage whose code is read, and what reads it and ptxas' log.
_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "cuda": ("ptx", nvidia_figures),
    "hip": ("amdgcn", lambda _, code, architecture: amd_figures(code, architecture)),
}


def read_figures(
    log: str, code: Mapping[str, Any], architecture: Architecture
) -> tuple[int, int, bool]:
    """Return registers, spills, and whether the matrix instruction is there.

    Args:
        log: what ``ptxas -v`` printed; empty where the backend has no ptxas.
        code: of each of Triton's stages, by its name.
    """
    stage, read = _READERS[architecture.backend]
    return read(log, code[stage], architecture)


def _has_matrix(code: str, architecture: Architecture) -> bool:
    return any(instruction in code for instruction in architecture.matrix_instructions)


def faults(
    figures: Figures, architecture: Architecture, *, spills: int = 0, matrix: bool = True
) -> list[str]:
    """Return what is wrong with a compiled kernel; empty where nothing is.

    A kernel that Triton compiled to nothing has no matrix instruction, and no other fault.

    Args:
        figures: of the kernel.
        architecture: what it was compiled for.
        spills: that its budget grants.
        matrix: whether it computes matrix products.
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
    if matrix and not figures.matrix:
        names = ", ".join(architecture.matrix_instructions)
        found.append(f"{where}: expected {names} in its code, got none")
    return found
