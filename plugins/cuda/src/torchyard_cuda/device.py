"""What the registry asks of the device."""

from __future__ import annotations

from typing import Any, Final

from torchyard import DeviceStatus, hookimpl, host_problem

__all__ = ["torchyard_probe_device"]

_FILES: Final = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvmap")
_HINT: Final = (
    "install a torch that is built for CUDA and a driver that supports it; see `nvidia-smi`"
)


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say what torch finds; imports torch, and initialises the device where there is one."""
    try:
        import torch
    except ImportError as error:
        return DeviceStatus(device, False, f"torch does not import: {error}", _HINT, count=0)
    if torch.version.hip:
        text = f"torch {torch.__version__} is built for ROCm, whose GPUs are torchyard-rocm's"
        return DeviceStatus(device, False, text, "pip install torchyard[rocm]", count=0)
    if torch.version.cuda is None:
        text = f"torch {torch.__version__} is built without CUDA"
        return DeviceStatus(device, False, text, _HINT, count=0)
    if not torch.cuda.is_available():
        text = f"torch {torch.__version__} for CUDA {torch.version.cuda} finds no device"
        problem = host_problem(_FILES, ("CUDA_VISIBLE_DEVICES",))
        return DeviceStatus(device, False, text, problem or _HINT, count=0)
    facts = torch.cuda.get_device_properties(0)
    return DeviceStatus(device, True, _described(facts), count=torch.cuda.device_count())


def _described(facts: Any) -> str:
    """Return model, architecture, processors, memory and clocks, of a device's properties."""
    parts = [
        f"{facts.name}, sm_{facts.major}{facts.minor}",
        f"{facts.multi_processor_count} multiprocessors",
        f"{facts.total_memory / 2**30:.1f} GiB",
    ]
    # Torch has told clocks since 2.7; in kHz.
    for name, what in (("clock_rate", "clock"), ("memory_clock_rate", "memory clock")):
        rate = getattr(facts, name, 0)
        if rate:
            parts.append(f"{what} {rate / 1000:.0f} MHz")
    return ", ".join(parts)
