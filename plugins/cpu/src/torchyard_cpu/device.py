"""What the registry asks of the processor."""

from __future__ import annotations

from torchyard import DeviceStatus, hookimpl
from torchyard_cpu import _isa

__all__ = ["torchyard_probe_device"]


@hookimpl
def torchyard_probe_device(device: str) -> DeviceStatus:
    """Say which instruction set the kernels will use on this processor."""
    try:
        from torchyard_cpu import _native
    except ImportError as error:
        return DeviceStatus(
            device, False, f"the native module does not load: {error}", "reinstall torchyard-cpu"
        )
    features = _native.cpu_features()
    isa = _isa.best(frozenset(features))
    found = f" ({' '.join(features)})" if features else ""
    return DeviceStatus(device, True, f"kernels for {isa}{found}")
