"""The device as Dynamo sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias

import torch

from torchyard_simulated import runtime
from torchyard_simulated._inductor._torch_compat import DeviceInterface, DeviceOpOverrides
from torchyard_simulated._loading import DEVICE

__all__ = ["SimulatedInterface", "SimulatedSource"]

_DeviceLike: TypeAlias = torch.device | str | int | None


def _exchange_device(device: int) -> int:
    before = int(runtime.current_device())
    if device >= 0:
        runtime.set_device(device)
    return before


class _Worker:
    """Facts that a compiling process may ask for; it runs nothing on the device."""

    @staticmethod
    def set_device(device: int) -> None:
        runtime.set_device(device)

    @staticmethod
    def current_device() -> int:
        return int(runtime.current_device())

    @staticmethod
    def get_device_properties(device: _DeviceLike = None) -> Any:
        _, size = runtime.get_memory_info(device)
        return SimpleNamespace(
            name=DEVICE, multi_processor_count=torch.get_num_threads(), total_memory=size
        )


class SimulatedInterface(DeviceInterface):
    """Streams, events and the current device, for programs that name none."""

    # The ignores: the names of positional arguments differ.
    device = runtime.device
    Event = runtime.Event
    Stream = runtime.Stream
    Worker = _Worker  # type: ignore[assignment]

    current_device = staticmethod(runtime.current_device)
    set_device = staticmethod(runtime.set_device)  # type: ignore[assignment]
    exchange_device = staticmethod(_exchange_device)
    maybe_exchange_device = staticmethod(_exchange_device)
    device_count = staticmethod(runtime.device_count)
    is_available = staticmethod(runtime.is_available)
    stream = staticmethod(runtime.stream)
    current_stream = staticmethod(runtime.current_stream)
    set_stream = staticmethod(runtime.set_stream)
    synchronize = staticmethod(runtime.synchronize)  # type: ignore[assignment]
    memory_allocated = staticmethod(runtime.memory_allocated)  # type: ignore[assignment]

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """Return the identity of the device's current stream."""
        return int(runtime.current_stream(device_idx).stream_id)

    @staticmethod
    def get_compute_capability(device: _DeviceLike = None) -> str:
        """Return the empty string: kernels are generated for the host's processor."""
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        """Return True: the host's kernels compute in bfloat16."""
        return True


class SimulatedSource(DeviceOpOverrides):
    """What generated programs say of the device, in Python."""

    def import_get_raw_stream_as(self, name: str) -> str:
        """Return lines that define a function from a device's index to its current stream."""
        return f"""
from torchyard_simulated._inductor._interface import SimulatedInterface
{name} = SimulatedInterface.get_raw_stream
"""

    def set_device(self, device_idx: int) -> str:
        """Return a line that makes a device the current one."""
        return f"torch.{DEVICE}.set_device({device_idx})"

    def synchronize(self) -> str:
        """Return a line that waits for the current device."""
        return f"torch.{DEVICE}.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        """Return a context in which a device is the current one."""
        return f"torch.{DEVICE}.device({device_idx})"

    def current_stream(self) -> str:
        """Return an expression of the current stream."""
        return f"torch.{DEVICE}.current_stream()"
