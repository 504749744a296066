"""Families of Apple's GPUs, by which Metal says what they can."""

from __future__ import annotations

import re
from typing import Final

from torchyard import Accelerator, Platform, ReasonCode, Verdict

__all__ = ["DEVICE", "family", "supports_machine"]

DEVICE: Final = "mps"
# The first family with matrices of simdgroups in float, that of M1.
_OLDEST: Final = 7
# Generation of M -> family (Apple's table of Metal features); torch reports the name alone.
_OF_M: Final = {1: 7, 2: 8, 3: 9, 4: 9, 5: 10}


def family(accelerator: Accelerator) -> int | None:
    """Return 9 for ``apple9``, or by the name of the chip; None for another GPU."""
    match = re.fullmatch(r"apple(\d+)", accelerator.architecture)
    if match is not None:
        return int(match[1])
    match = re.match(r"Apple M(\d+)\b", accelerator.name)
    if match is None:
        return None
    generation = int(match[1])
    return _OF_M.get(generation, max(_OF_M.values()) if generation > max(_OF_M) else None)


def supports_machine(device: str, platform: Platform) -> Verdict:
    """Judge the device of a request, and the machine's GPU."""
    if device != DEVICE:
        return Verdict.no(ReasonCode.DEVICE, f"expected tensors on {DEVICE}, got {device}")
    accelerator = platform.accelerator(device)
    if accelerator is None:
        return Verdict.no(ReasonCode.DEVICE, "expected an Apple GPU, found none")
    found = family(accelerator)
    if found is None or found < _OLDEST:
        got = accelerator.architecture or accelerator.name or "unknown"
        return Verdict.no(ReasonCode.ISA, f"expected apple{_OLDEST} or newer, got {got}")
    return Verdict.yes(f"Metal kernels for apple{found}")
