"""SPIR-V without what a CPU's OpenCL refuses, though no result depends on it."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["for_cpu"]

_HEADER: Final = 5
_MAGIC: Final = 0x07230203
_EXECUTION_MODE: Final = 16
_CAPABILITY: Final = 17
# SPV_INTEL_kernel_attributes' register mode, which says how many registers a GPU's thread has.
_REFUSED_CAPABILITIES: Final = frozenset({5892})
_REFUSED_MODES: Final = frozenset({5893})


def for_cpu(code: bytes) -> bytes:
    """Return a module without the capabilities and execution modes of GPUs alone.

    Raises:
        ValueError: it is no SPIR-V.
    """
    words = struct.unpack(f"<{len(code) // 4}I", code[: len(code) // 4 * 4])
    if len(words) < _HEADER or words[0] != _MAGIC:
        raise ValueError("for_cpu: code: expected SPIR-V, got other bytes")
    kept = list(words[:_HEADER])
    place = _HEADER
    while place < len(words):
        length, operation = words[place] >> 16, words[place] & 0xFFFF
        if not length or place + length > len(words):
            raise ValueError(f"for_cpu: code: expected an instruction at word {place}")
        instruction = words[place : place + length]
        refused = (operation == _CAPABILITY and instruction[1] in _REFUSED_CAPABILITIES) or (
            operation == _EXECUTION_MODE and instruction[2] in _REFUSED_MODES
        )
        if not refused:
            kept += instruction
        place += length
    return struct.pack(f"<{len(kept)}I", *kept)
