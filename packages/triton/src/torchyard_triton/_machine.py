"""Whether a machine has what the kernels need, from its facts alone."""

from __future__ import annotations

import re
from typing import Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_triton._vendor import Vendor

__all__ = ["supports_machine"]

# The oldest minor that the kernels are compiled with.
_MINIMUM: Final = (3, 6)


def supports_machine(device: str, platform: Platform, vendor: Vendor) -> Verdict:
    """Judge device, architecture and Triton.

    Args:
        device: the request's torch device type.
        platform: the machine.
        vendor: whose device.
    """
    if device != vendor.device:
        return Verdict.no(ReasonCode.DEVICE, f"expected tensors on {vendor.device}, got {device}")
    accelerator = platform.accelerator(device)
    if accelerator is None:
        return Verdict.no(ReasonCode.DEVICE, f"expected a device of type {device}, found none")
    name = vendor.arch_of(accelerator)
    own = vendor.architectures()
    architecture = own.get(name)
    if architecture is None:
        known = ", ".join(own)
        return Verdict.no(ReasonCode.ISA, f"expected one of {known}, got {name or 'unknown'}")
    if 0 < accelerator.shared_memory < architecture.shared_memory:
        return Verdict.no(
            ReasonCode.MEMORY,
            f"expected {architecture.shared_memory} bytes of shared memory on {name}, got "
            f"{accelerator.shared_memory}",
        )
    version = dict(platform.libraries).get("triton")
    if version is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY,
            "expected triton, found none",
            "pip install torchyard-triton[triton], or a torch that brings it",
        )
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _MINIMUM:
        least = ".".join(map(str, _MINIMUM))
        return Verdict.no(ReasonCode.VERSION, f"expected triton {least} or newer, got {version}")
    return Verdict.yes(f"Triton {version} kernels for {name}")
