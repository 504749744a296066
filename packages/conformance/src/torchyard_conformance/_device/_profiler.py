"""torch.profiler on a device."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from torchyard_conformance._outcome import violated

__all__ = ["check_profiler"]


def check_profiler(device: str) -> None:
    """Profile operators with the device's activity asked for, and with its times.

    Raises:
        Violated: an operator that ran is not named as often as it ran, or has no time of the
            device.
    """
    x = torch.ones(8, 8, device=device)
    asked = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=asked) as found:
        for _ in range(3):
            x.add_(1)
        x.mm(x)
        torch.accelerator.synchronize()
    counts = {event.key: event.count for event in found.key_averages()}
    for name, least in (("aten::add_", 3), ("aten::mm", 1)):
        if counts.get(name, 0) < least:
            violated(f"expected {least} of {name} in the profile, got {counts.get(name, 0)}")
    with torch.autograd.profiler.profile(use_device=device) as timed:
        for _ in range(3):
            x.mm(x)
        torch.accelerator.synchronize()
    times = {event.key: event.device_time_total for event in timed.key_averages()}
    if not times.get("aten::mm", 0.0) > 0:
        violated(
            f"use_device={device!r}: expected a time of aten::mm above 0 us, got "
            f"{times.get('aten::mm')}"
        )
