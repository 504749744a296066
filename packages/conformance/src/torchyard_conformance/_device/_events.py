"""Streams and events of a device."""

from __future__ import annotations

import time

import torch

from torchyard_conformance._device._model import compare
from torchyard_conformance._outcome import violated

__all__ = ["check_events"]

_SECONDS = 0.05


def check_events(device: str) -> None:
    """Record events around work, wait for them, and read the time between two.

    Raises:
        Violated: an event is not over after it was waited for, its time is none of the clock's, or
            work that waits for an event reads memory from before it.
    """
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    x = torch.ones(256, 256, device=device)
    begun = time.perf_counter()
    start.record()
    start.synchronize()
    y = x @ x
    time.sleep(_SECONDS)
    end.record()
    end.synchronize()
    passed = (time.perf_counter() - begun) * 1e3
    if not (start.query() and end.query()):
        violated("an event that was waited for: expected query() to be True, it is False")
    compare("a product between two events", y, torch.full((256, 256), 256.0))
    found = start.elapsed_time(end)
    # A clock of the device may run a little faster or slower than the host's.
    if not 0.9 * _SECONDS * 1e3 <= found <= 1.1 * passed:
        violated(
            f"elapsed_time: expected at least the {_SECONDS * 1e3:.0f} ms between two "
            f"events and at most {passed:.1f} ms, got {found:.3f}"
        )
    _check_waiting(device, x)


def _check_waiting(device: str, x: torch.Tensor) -> None:
    stream = torch.Stream(device)
    with stream:
        y = x * 2
        done = stream.record_event()
    torch.accelerator.current_stream().wait_event(done)
    compare("work behind an event of another stream", y + 1, torch.full((256, 256), 3.0))
