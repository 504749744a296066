"""What the registry asks of the device."""

from __future__ import annotations

from torchyard import DeviceStatus, hookimpl
from torchyard_simulated._loading import DeviceLoadError, load

__all__ = ["torchyard_probe_device"]


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say whether the simulated device can be used in this process; loads it if need be."""
    try:
        load()
    except DeviceLoadError as error:
        return DeviceStatus(device, False, error.reason, error.hint, count=0)
    from torchyard_simulated import runtime

    count = runtime.device_count()
    _, size = runtime.get_memory_info(0)
    text = f"simulated on the host, {size >> 30} GiB each; operators run on torch's CPU kernels"
    return DeviceStatus(device, True, text, count=count)
