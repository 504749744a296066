"""torch's profilers: names of the device's work, and how long it took in its stream."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile


def _work() -> None:
    x = torch.ones(64, 64, device="simulated")
    (x @ x).add_(1)
    torch.accelerator.synchronize()


def test_the_legacy_profiler_tells_device_times() -> None:
    _work()
    with torch.autograd.profiler.profile(use_device="simulated", use_kineto=False) as found:
        _work()
    times = {event.key: event.device_time_total for event in found.key_averages()}
    assert times["aten::mm"] > 0
    assert times["aten::add_"] > 0
    assert times["aten::empty"] <= times["aten::mm"]


def test_torch_profiler_names_operators_and_has_no_device_times() -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as found:
        _work()
    events = {event.key: event for event in found.key_averages()}
    assert events["aten::mm"].count >= 1
    assert all(event.device_time_total == 0 for event in events.values())


def test_profiling_a_capture_neither_waits_nor_breaks_it() -> None:
    x = torch.zeros(4, device="simulated")
    graph = torch.accelerator.Graph()
    profiler = torch.autograd.profiler.profile(use_device="simulated", use_kineto=False)
    with profiler, torch.Stream("simulated"), graph:
        y = x + 1
    x.fill_(2)
    graph.replay()
    assert y.tolist() == [3.0] * 4
