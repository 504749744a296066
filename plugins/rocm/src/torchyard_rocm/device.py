"""What the registry asks of the device."""

from __future__ import annotations

from typing import Any, Final

from torchyard import DeviceStatus, hookimpl, host_problem

__all__ = ["torchyard_probe_device"]

_FILES: Final = ("/dev/kfd", "/dev/dxg")
_SETTINGS: Final = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_HINT: Final = (
    "install a torch that is built for ROCm and AMD's driver for it; see `rocminfo` for the devices"
)


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say what torch finds; imports torch, and initialises the device where there is one."""
    try:
        import torch
    except ImportError as error:
        return DeviceStatus(device, False, f"torch does not import: {error}", _HINT, count=0)
    if torch.version.cuda:
        text = f"torch {torch.__version__} is built for CUDA, whose GPUs are torchyard-cuda's"
        return DeviceStatus(device, False, text, "pip install torchyard[cuda]", count=0)
    if not torch.version.hip:
        text = f"torch {torch.__version__} is built without ROCm"
        return DeviceStatus(device, False, text, _HINT, count=0)
    if not torch.cuda.is_available():
        text = f"torch {torch.__version__} for ROCm {torch.version.hip} finds no device"
        return DeviceStatus(device, False, text, host_problem(_FILES, _SETTINGS) or _HINT, count=0)
    facts = torch.cuda.get_device_properties(0)
    return DeviceStatus(device, True, _described(facts), count=torch.cuda.device_count())


def _described(facts: Any) -> str:
    """Return model, architecture, compute units and memory, of a device's properties."""
    return (
        f"{facts.name}, {str(facts.gcnArchName).partition(':')[0]}, "
        f"{facts.multi_processor_count} compute units, {facts.total_memory / 2**30:.1f} GiB"
    )
