"""How many waves of a kernel an AMD GPU holds at once, from its code alone."""

from __future__ import annotations

import re
from typing import Final

from torchyard_triton.architectures import Architecture

__all__ = ["unit_waves"]

_SIMDS: Final = 4


def unit_waves(code: str, architecture: Architecture, shared_memory: int, warps: int) -> int:
    """Return the waves that the four SIMDs of a compute unit hold, or of a work-group processor.

    Registers: LLVM writes what each SIMD holds of the kernel into its assembly. Shared memory that
    a launch brings is not known to it. Programs are held whole.

    Args:
        code: the assembly with its metadata.
        architecture: that it is for; one without ``unit_memory`` has 0 waves.
        shared_memory: bytes of a program.
        warps: of a program.
    """
    if not architecture.unit_memory:
        return 0
    found = re.search(r"; Occupancy: (\d+)", code)
    if found is None:
        raise ValueError("unit_waves: code: expected assembly with '; Occupancy:', got none")
    programs = int(found[1]) * _SIMDS // warps
    if shared_memory:
        programs = min(programs, architecture.unit_memory // shared_memory)
    return programs * warps
