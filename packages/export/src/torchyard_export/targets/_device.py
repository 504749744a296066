"""The accelerator that machine code is for: who can compile for it, what is said of it, whether it
is here. Facts of a platform decide, so that any machine can be written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from torchyard import (
    Accelerator,
    Platform,
    ReasonCode,
    Verdict,
    probe_platform,
    with_accelerators,
)
from torchyard_export.contract import ExportRequest, TargetError

if TYPE_CHECKING:
    import torch

__all__ = [
    "HOST",
    "accelerator_in_use",
    "accelerator_of",
    "check_device",
    "description",
    "device_of",
    "supports_device",
    "versions_of",
]

#: What runs machine code without an accelerator.
HOST: Final = "cpu"

# Device -> the library in whose language torch writes kernels for it; empty where torch needs none.
_COMPILERS: Final = {"cuda": "triton", "mps": "", "xpu": "triton"}
# In a package's metadata, where torch says `AOTI_DEVICE_KEY` and no architecture of every device.
_DEVICE: Final = "TORCHYARD_DEVICE"
_ARCHITECTURE: Final = "TORCHYARD_ARCHITECTURE"
_AGAIN: Final = "export the model again on this machine"


def supports_device(request: ExportRequest, platform: Platform) -> Verdict:
    """Judge whether torch compiles for a request's device here, or runs what it compiled.

    Args:
        request: what is asked of the target.
        platform: the machine.
    """
    device = request.device
    if device == HOST:
        return Verdict.yes("machine code by AOTInductor")
    if device not in platform.devices:
        return Verdict.no(
            ReasonCode.DEVICE,
            f"expected a device of type {device!r}, which the machine code is for, got "
            f"{', '.join(sorted(platform.devices))}",
            "use a machine that has one, with torch's build for it and its driver",
        )
    if device not in _COMPILERS and not _generates(device):
        return Verdict.no(
            ReasonCode.DEVICE,
            f"expected a device that AOTInductor generates code for, got {device!r}",
            "use the target pt2, which torch's own operators run",
        )
    library = _COMPILERS.get(device, "")
    # Of kernels that are compiled nothing is left to compile.
    if library and not request.loads and platform.library(library) is None:
        return Verdict.no(
            ReasonCode.DEPENDENCY,
            f"expected {library}, in which torch writes kernels for {device!r}, found none",
            f"install torch's build for {device!r} with the {library} that it requires",
        )
    return Verdict.yes(f"machine code by AOTInductor, for the architecture of {device!r} here")


def _generates(device: str) -> bool:
    from torchyard_export._torch_compat import generates_code

    return generates_code(device)


def accelerator_in_use(device: torch.device) -> tuple[Platform, Accelerator]:
    """Return this machine and its accelerator that a torch device stands for.

    Args:
        device: without an index the current device of its type.

    Raises:
        TargetError: there is none of its type.
    """
    import torch

    machine = with_accelerators(probe_platform(), device.type)
    name = ""
    # Some machines have two models of a type, such as a processor's own and a card.
    if sum(item.device == device.type for item in machine.accelerators) > 1:
        name = str(torch.get_device_module(device.type).get_device_properties(device).name)
    return machine, accelerator_of(device.type, machine, name)


def accelerator_of(device: str, platform: Platform, name: str) -> Accelerator:
    """Return the facts of the accelerator in use.

    Args:
        device: torch device type.
        platform: the machine, with the facts of its accelerators.
        name: the model in use, by its driver; it decides where there are several.

    Raises:
        TargetError: there is none.
    """
    found = [item for item in platform.accelerators if item.device == device]
    if not found and device in platform.devices:
        # One of which torch has no facts.
        return Accelerator(device, "", "")
    if not found:
        raise TargetError(
            f"expected a device of type {device!r}, which the machine code is for, got "
            f"{', '.join(sorted(platform.devices))}; use a machine that has one, with torch's "
            "build for it and its driver, or export the model on the device at hand"
        )
    return next((item for item in found if item.name == name), found[0])


def description(accelerator: Accelerator, platform: Platform) -> dict[str, str]:
    """Return what a package says of the accelerator that it was compiled for.

    Args:
        accelerator: that one.
        platform: the machine, with the versions of its libraries.
    """
    return {
        _DEVICE: accelerator.device,
        _ARCHITECTURE: accelerator.architecture,
        "TORCHYARD_DEVICE_NAME": accelerator.name,
        "TORCHYARD_DRIVER": accelerator.driver,
        "TORCHYARD_RUNTIME": accelerator.runtime,
        "TORCHYARD_LIBRARIES": ", ".join(f"{name} {has}" for name, has in platform.libraries),
    }


def versions_of(accelerator: Accelerator, platform: Platform) -> dict[str, str]:
    """Return what of it a reader of a report asks for, where it is known: name -> version."""
    found = {
        "device": " ".join(filter(None, (accelerator.architecture, accelerator.name))),
        "driver": accelerator.driver,
        "runtime": accelerator.runtime,
        **dict(platform.libraries),
    }
    return {name: text for name, text in found.items() if text}


def device_of(said: Mapping[str, str]) -> str:
    """Return the torch device type that a package is for, by its metadata."""
    return said.get(_DEVICE, said.get("AOTI_DEVICE_KEY", HOST))


def check_device(said: Mapping[str, str], accelerator: Accelerator) -> None:
    """Refuse code for another architecture: its kernels would not start, or compute in silence.

    Args:
        said: the package's metadata.
        accelerator: the one in use here, of the package's device type.

    Raises:
        TargetError: names both architectures; or the package does not say its own.
    """
    if _ARCHITECTURE not in said:
        raise TargetError(
            f"metadata: expected {_ARCHITECTURE}, which architecture of {accelerator.device!r} the "
            f"machine code is for, got none; {_AGAIN}"
        )
    wanted, has = said[_ARCHITECTURE], accelerator.architecture
    # Where a driver does not say it, kernels travel as source.
    if wanted != has:
        raise TargetError(
            f"expected a device of type {accelerator.device!r} and architecture {wanted!r}, which "
            f"the machine code is for, got {has!r} ({accelerator.name}); {_AGAIN}"
        )
