"""What of an accelerator's architecture kernels are held to, without the accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["ARCHITECTURES", "Architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture as Triton compiles for it.

    Attributes:
        name: ``sm_90``, ``gfx942`` ...
        backend: Triton's: ``cuda`` or ``hip``.
        arch: Triton's name: the capability as a number, or the AMD target.
        lanes: threads that execute together.
        shared_memory: bytes that one program can have.
        matrix_instructions: texts of which one is in the code of every matrix product.
    """

    name: str
    backend: str
    arch: int | str
    lanes: int
    shared_memory: int
    matrix_instructions: tuple[str, ...]


def _nvidia(capability: int, kilobytes: int, instruction: str) -> Architecture:
    instructions = (instruction,)
    name = f"sm_{capability}"
    return Architecture(name, "cuda", capability, 32, kilobytes * 1024, instructions)


def _amd(arch: str, lanes: int, kilobytes: int, instruction: str) -> Architecture:
    return Architecture(arch, "hip", arch, lanes, kilobytes * 1024, (instruction,))


# Shared memory: NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability" (per thread block); AMD's architecture manuals (LDS per work group).
_ALL: Final = (
    _nvidia(80, 163, "mma.sync"),
    _nvidia(86, 99, "mma.sync"),
    _nvidia(89, 99, "mma.sync"),
    _nvidia(90, 227, "wgmma.mma_async"),
    _nvidia(100, 227, "tcgen05.mma"),
    _nvidia(103, 227, "tcgen05.mma"),
    _nvidia(120, 99, "mma.sync"),
    _amd("gfx942", 64, 64, "v_mfma"),
    _amd("gfx950", 64, 160, "v_mfma"),
    _amd("gfx1100", 32, 64, "v_wmma"),
    _amd("gfx1201", 32, 64, "v_wmma"),
)
ARCHITECTURES: Final[Mapping[str, Architecture]] = MappingProxyType(
    {item.name: item for item in _ALL}
)
