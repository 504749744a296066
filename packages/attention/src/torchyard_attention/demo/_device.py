"""The device that a run takes place on, and the threads that it computes with."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

import torch

from torchyard import registry
from torchyard.torch_compat import privateuse1_backend_name

# A step ends when its slowest thread does: where another process holds a core, two threads can
# take ten times as long as one.
_SECONDS: Final = 0.4
_GAIN: Final = 1.15


class DeviceError(ValueError):
    """The device cannot be used; says why and which can."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a run takes place, for a person.

    Attributes:
        device: the device.
        text: what it is.
        brief: the same in a few words.
        load: how many processes wanted a processor in the last minute; None where unknown.
        others: devices that could be asked for instead.
    """

    device: torch.device
    text: str
    brief: str
    load: float | None
    others: tuple[str, ...]

    @property
    def busy(self) -> bool:
        """Whether others compute here too, so that times say little."""
        return self.load is not None and self.load > 0.5 * (os.cpu_count() or 1)


def parse_device(text: str) -> Machine:
    """Read ``auto`` or a device type, and ask the registry whether it can be used.

    ``auto`` is an accelerator of torch's own, else the cpu. A device on torch's slot for devices
    outside of its tree may be slow, and must be asked for by name.

    Raises:
        DeviceError: it is unknown or not available.
    """
    available = _available()
    names = ", ".join(["auto", *available])
    if text == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        slot = privateuse1_backend_name()
        usable = accelerator is not None and accelerator.type in available
        chosen = accelerator.type if accelerator is not None and usable else "cpu"
        if chosen == slot:
            chosen = "cpu"
    else:
        chosen = text
    if chosen not in available:
        known = {device for _, device in registry().devices()}
        why = registry().probe_device(chosen).text if chosen in known else "no such device here"
        raise DeviceError(f"expected one of {names}, got {text!r}: {why}")
    others = tuple(name for name in available if name != chosen)
    words = available[chosen]
    if chosen == "cpu":
        most = torch.get_num_threads()
        words = f"{use_fastest_threads()} of {most} threads, {words}"
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Machine(torch.device(chosen), words, words.split(" (")[0], load, others)


def _available() -> dict[str, str]:
    """Return the usable device types, with what they are."""
    found = {"cpu": torch.backends.cpu.get_cpu_capability()}
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None:
        found[accelerator.type] = "torch has it"
    for _, device in registry().devices():
        status = registry().probe_device(device)
        if status.available:
            found[device] = status.text
    return found


def use_fastest_threads() -> int:
    """Set torch to all of its threads, or to one where that is about as fast; return how many."""
    most = torch.get_num_threads()
    if most > 1:
        together = _pace()
        torch.set_num_threads(1)
        alone = _pace()
        if together > _GAIN * alone:
            torch.set_num_threads(most)
    return torch.get_num_threads()


def _pace() -> float:
    """Return how often per second a layer of the demo's kind is computed."""
    rows, weights = torch.randn(1024, 256), torch.randn(256, 1024)
    done, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < _SECONDS:
        torch.nn.functional.gelu(rows @ weights)
        done += 1
    return done / elapsed
