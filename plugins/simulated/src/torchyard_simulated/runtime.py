"""The device's own functions: what ``torch.simulated`` is once the device is loaded.

Devices are given as ``None`` (the current one), an index, a string or a ``torch.device``.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.accelerator import current_device_index as current_device
from torch.accelerator import (
    current_stream,
    empty_cache,
    get_memory_info,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from torch.accelerator import set_device_index as set_device

__all__ = [
    "DeviceProperties",
    "Event",
    "Stream",
    "compiled_launches",
    "current_device",
    "current_stream",
    "device",
    "device_count",
    "empty_cache",
    "fallback_counts",
    "get_amp_supported_dtype",
    "get_device_properties",
    "get_memory_info",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "pending_work",
    "pinned_bytes",
    "reset_accumulated_memory_stats",
    "reset_fallback_counts",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_memory_limit",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

_DeviceLike: TypeAlias = torch.device | str | int | None

Event = torch.Event
Stream = torch.Stream

_DEVICE = "simulated"
_ops: Any = torch.ops.torchyard_simulated
# Read by torch.utils.checkpoint, which saves the random state of initialized devices only.
_initialized = True


def _index(device: _DeviceLike) -> int:
    if isinstance(device, int):
        return device
    if device is None:
        device = _DEVICE
    parsed = torch.device(device)
    if parsed.type != _DEVICE:
        raise ValueError(f"device: expected a simulated device, got {str(parsed)!r}")
    return int(current_device()) if str(parsed) == _DEVICE else parsed.index


class device(torch.accelerator.device_index):
    """A context in which another device is the current one."""

    def __init__(self, device: _DeviceLike) -> None:
        super().__init__(_index(device))


def stream(stream: torch.Stream | None) -> AbstractContextManager[object]:
    """Return a context in which another stream is the current one of its device.

    Args:
        stream: of this device; None changes nothing.
    """
    return nullcontext() if stream is None else stream


def device_count() -> int:
    """Return how many simulated devices there are."""
    return int(_ops.device_count())


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What the device is.

    Attributes:
        name: the model.
        architecture: what code is compiled for.
        total_memory: bytes.
    """

    name: str
    architecture: str
    total_memory: int


def get_device_properties(device: _DeviceLike = None) -> DeviceProperties:
    """Return what a device is."""
    _, total = get_memory_info(_index(device))
    return DeviceProperties("simulated device", _DEVICE, int(total))


def is_available() -> bool:
    """Return True: a loaded simulated device can always be used."""
    return True


def init() -> None:
    """Do nothing: the device has no state that is made later than at loading."""


def is_initialized() -> bool:
    """Return True, as there is nothing to initialize."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast`` accepts for this device."""
    return [torch.float16, torch.bfloat16]


def _is_in_bad_fork() -> bool:
    """Return False: the device is plain memory of the process and survives a fork."""
    return False


def manual_seed(seed: int, device: _DeviceLike = None) -> None:
    """Seed the default generator of one device."""
    # The operator takes a signed integer; the bits are those of the unsigned seed.
    wrapped = int(seed) & 0xFFFF_FFFF_FFFF_FFFF
    _ops.manual_seed(_index(device), wrapped - (1 << 64) if wrapped >= 1 << 63 else wrapped)


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices; ``torch.manual_seed`` calls this."""
    for index in range(device_count()):
        manual_seed(seed, index)


def seed(device: _DeviceLike = None) -> int:
    """Seed one device from the system's entropy; returns the seed."""
    fresh = int(torch.Generator().seed())
    manual_seed(fresh, device)
    return fresh


def seed_all() -> None:
    """Seed all devices with one seed from the system's entropy."""
    manual_seed_all(int(torch.Generator().seed()))


def initial_seed(device: _DeviceLike = None) -> int:
    """Return the seed that the device's default generator started from."""
    return int(_ops.initial_seed(_index(device))) & 0xFFFF_FFFF_FFFF_FFFF


def get_rng_state(device: _DeviceLike = None) -> torch.Tensor:
    """Return the state of the device's default generator as a CPU tensor of bytes."""
    state: torch.Tensor = _ops.get_rng_state(_index(device))
    return state


def set_rng_state(new_state: torch.Tensor, device: _DeviceLike = None) -> None:
    """Set the state of the device's default generator, as :func:`get_rng_state` returned it."""
    _ops.set_rng_state(_index(device), new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of the default generators of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the states of the default generators of all devices."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def fallback_counts() -> dict[str, int]:
    """Return how often each operator ran on the host, by its full name (``aten::mm.out``)."""
    names, calls = _ops.fallback_counts()
    return dict(zip(names, calls, strict=True))


def reset_fallback_counts() -> None:
    """Start counting from zero."""
    _ops.reset_fallback_counts()


def compiled_launches() -> int:
    """Return how many kernels that torch.compile generated were launched in this process."""
    return int(_ops.compiled_launches())


def pending_work(device: _DeviceLike = None) -> int:
    """Return how many items wait in the streams of a device; runs none of them."""
    return int(_ops.pending_work(_index(device)))


def set_memory_limit(size: int, device: _DeviceLike = None) -> None:
    """Set the size of a device's memory in bytes; 8 GiB at the start."""
    _ops.set_memory_limit(_index(device), size)


def pinned_bytes() -> int:
    """Return how many bytes of pinned host memory are in use."""
    return int(_ops.pinned_bytes())


def __getattr__(name: str) -> Any:
    """Register the device with Inductor, which asks its module for ``Scheduling`` when it starts.

    Nothing of Inductor is imported earlier: that takes seconds.
    """
    if name == "Scheduling":
        from torchyard_simulated._inductor._registration import register

        register()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
