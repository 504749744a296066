"""What the registry asks of the device."""

from __future__ import annotations

from typing import Final

from torchyard import DeviceStatus, hookimpl

__all__ = ["torchyard_probe_device"]

_HINT: Final = "use a Mac with Apple silicon, macOS 14 or newer, and torch's build for it"


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say what torch finds; imports torch."""
    try:
        import torch
    except ImportError as error:
        return DeviceStatus(device, False, f"torch does not import: {error}", _HINT, count=0)
    if not torch.backends.mps.is_built():
        text = f"torch {torch.__version__} is built without Metal"
        return DeviceStatus(device, False, text, _HINT, count=0)
    if not torch.backends.mps.is_available():
        text = f"torch {torch.__version__} finds no GPU that Metal drives"
        return DeviceStatus(device, False, text, _HINT, count=0)
    memory = torch.mps.recommended_max_memory() / 2**30
    used = torch.mps.driver_allocated_memory() / 2**30
    text = (
        f"{torch.backends.mps.get_name()}, {torch.backends.mps.get_core_count()} cores, "
        f"{memory:.1f} GiB to use at most, {used:.1f} GiB held by this process"
    )
    return DeviceStatus(device, True, text, count=1)
