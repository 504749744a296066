"""What the registry asks of the device."""

from __future__ import annotations

from typing import Any, Final

from torchyard import DeviceStatus, hookimpl, host_problem

__all__ = ["torchyard_probe_device"]

_FILES: Final = ("/dev/dri/renderD128", "/dev/dxg")
_SETTINGS: Final = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")
_HINT: Final = (
    "install a torch that is built for XPU and Intel's driver for it; see `clinfo` or `xpu-smi`"
)


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say what torch finds; imports torch, and initialises the device where there is one."""
    try:
        import torch
    except ImportError as error:
        return DeviceStatus(device, False, f"torch does not import: {error}", _HINT, count=0)
    if not torch.version.xpu:
        built = next(
            (name for name in ("cuda", "hip") if getattr(torch.version, name, None)), "the CPU"
        )
        text = f"torch {torch.__version__} is built for {built}, and not for XPU"
        return DeviceStatus(device, False, text, _HINT, count=0)
    if not torch.xpu.is_available():
        text = f"torch {torch.__version__} for XPU {torch.version.xpu} finds no device"
        return DeviceStatus(device, False, text, host_problem(_FILES, _SETTINGS) or _HINT, count=0)
    facts = torch.xpu.get_device_properties(0)
    return DeviceStatus(device, True, _described(facts), count=torch.xpu.device_count())


def _described(facts: Any) -> str:
    """Return model, compute units, memory and driver, of a device's properties."""
    return (
        f"{facts.name}, {facts.max_compute_units} vector engines, "
        f"{facts.total_memory / 2**30:.1f} GiB, driver {facts.driver_version}"
    )
