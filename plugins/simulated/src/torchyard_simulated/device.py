"""What the registry asks of the device."""

from __future__ import annotations

from torchyard import DeviceStatus, hookimpl
from torchyard_simulated._loading import HOW_TO_ASK, DeviceLoadError, is_asked_for, load

__all__ = ["torchyard_probe_device"]


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say whether the simulated device can be used in this process; loads it if it is asked for."""
    if not is_asked_for():
        text = "a device for tests, which takes part on request only; nobody asked for it"
        return DeviceStatus(device, False, text, HOW_TO_ASK, count=0)
    try:
        load()
    except DeviceLoadError as error:
        return DeviceStatus(device, False, error.reason, error.hint, count=0)
    from torchyard_simulated import runtime

    count = runtime.device_count()
    _, size = runtime.get_memory_info(0)
    text = f"simulated on the host, {size >> 30} GiB each; operators run on torch's CPU kernels"
    return DeviceStatus(device, True, text, count=count)
