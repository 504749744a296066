"""What of an NVIDIA GPU verdicts ask: its compute capability, and versions as numbers."""

from __future__ import annotations

import re
from typing import Final

from torchyard import Accelerator, Platform, ReasonCode, Verdict

__all__ = ["DEVICE", "accelerator_of", "capability", "refused_machine", "version_numbers"]

# torch's type for NVIDIA's devices, and for AMD's.
DEVICE: Final = "cuda"
_NVIDIA: Final = re.compile(r"sm_(\d+)(\d)[af]?")


def capability(accelerator: Accelerator) -> tuple[int, int] | None:
    """Return (9, 0) for ``sm_90``; None for what is not NVIDIA's."""
    match = _NVIDIA.fullmatch(accelerator.architecture)
    return None if match is None else (int(match[1]), int(match[2]))


def accelerator_of(platform: Platform) -> Accelerator | None:
    """Return the machine's first NVIDIA GPU; None without one."""
    found = platform.accelerator(DEVICE)
    return None if found is None or capability(found) is None else found


def refused_machine(
    device: str, platform: Platform, oldest: tuple[int, int], newest: tuple[int, int]
) -> Verdict | None:
    """Refuse another device, a machine without an NVIDIA GPU, and capabilities outside a range.

    Args:
        device: the request's.
        platform: the machine.
        oldest, newest: compute capabilities, both included.
    """
    if device != DEVICE:
        return Verdict.no(ReasonCode.DEVICE, f"expected tensors on {DEVICE}, got {device}")
    accelerator = platform.accelerator(device)
    if accelerator is None:
        return Verdict.no(ReasonCode.DEVICE, "expected an NVIDIA GPU, found none")
    found = capability(accelerator)
    if found is None or not oldest <= found <= newest:
        return Verdict.no(
            ReasonCode.ISA,
            f"expected an NVIDIA GPU from sm_{oldest[0]}{oldest[1]} to sm_{newest[0]}{newest[1]}, "
            f"got {accelerator.architecture or 'unknown'}",
        )
    return None


def version_numbers(platform: Platform, library: str) -> tuple[int, ...]:
    """Return (9, 20, 0) for a library's ``9.20.0``; empty where it is absent or not a number."""
    match = re.match(r"\d+(\.\d+)*", platform.library(library) or "")
    return () if match is None else tuple(map(int, match[0].split(".")))
