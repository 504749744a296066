"""Memory that grows with calls, and their time relative to the reference's."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch

from torchyard_conformance._outcome import Violated

__all__ = ["costs_little", "does_not_grow"]

# Until caches, thread pools and lazily imported modules are there.
_WARM_UP: Final = 8
# Calls of each round. A leak grows in every round; what fills a cache or breaks memory into pieces
# stops, and where it fills slowly, by the addresses that tensors happen to have, the last show it.
_ROUNDS: Final = (16,) * 6 + (128,) * 2
# Bytes for each call of a round: less is what an allocator asks the system for at a time.
_BYTES: Final = 4096.0

# How much longer than the reference a call may take; a busy machine may add the seconds.
_TIMES: Final = 20.0
_REFERENCES: Final = 6
_SECONDS: Final = 0.03
# The best of these counts, so that only what is slow every time is slow.
_TRIES: Final = 20
_PATIENCE_SECONDS: Final = 20.0


def does_not_grow(call: Callable[[], object], device: str) -> dict[str, float]:
    """Make the same call again and again, and look at what the process holds after each round.

    Python's objects are counted, and the bytes that the process and the device have given out.

    Args:
        call: one call, with tensors of its own; its result is dropped.
        device: where it computes.

    Raises:
        Violated: one of them grows in every round.
    """
    for _ in range(_WARM_UP):
        call()
    # What is there now is looked at by no collection below, of which each would take long.
    # Whoever froze something before wants it so.
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        growing: dict[str, list[float]] = {name: [] for name in _held(device)}
        before = _held(device)
        for calls in _ROUNDS:
            for _ in range(calls):
                call()
            after = _held(device)
            for name, (amount, least) in after.items():
                growing[name].append((amount - before[name][0]) / calls / least)
            before = after
            if all(min(grown) < 1.0 for grown in growing.values()):
                return {"rounds": float(len(growing["objects of Python"]))}
    finally:
        if not frozen:
            gc.unfreeze()
    for name, grown in growing.items():
        least = before[name][1]
        if (slope := min(grown) * least) >= least:
            raise Violated(
                f"expected memory to stay what it is over {len(_ROUNDS)} rounds of equal calls, "
                f"{sum(_ROUNDS)} in all, got {slope:.0f} more {name} for each call, in every round"
            )
    return {"rounds": float(len(_ROUNDS))}


def costs_little(
    call: Callable[[], object], reference: Callable[[], object], device: str
) -> dict[str, float]:
    """Time a call beside the reference's, in turns, until it was once fast enough.

    Args:
        call: one call.
        reference: the contract's reference on the same call, in float64 on the CPU.
        device: where the call computes.

    Raises:
        Violated: it was too slow in every try.
    """
    for _ in range(2):
        call()
    began = time.perf_counter()
    own: list[float] = []
    # The least of several, so that a machine that was busy once does not loosen the bound.
    its = [_seconds(reference, "") for _ in range(_REFERENCES)]
    while len(own) < _TRIES and time.perf_counter() - began < _PATIENCE_SECONDS:
        its.append(_seconds(reference, ""))
        own.append(_seconds(call, device))
        bound = _TIMES * min(its) + _SECONDS
        if min(own) <= bound:
            return {"times_reference": min(own) / min(its)}
    raise Violated(
        f"expected a call to take at most {_TIMES:.0f} times the reference's "
        f"{min(its) * 1e3:.2f} ms and {_SECONDS * 1e3:.0f} ms more, got {min(own) * 1e3:.1f} ms, "
        f"the best of {len(own)}"
    )


def _seconds(call: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    call()
    if _is_accelerator(device):
        torch.accelerator.synchronize()
    return time.perf_counter() - start


def _held(device: str) -> dict[str, tuple[float, float]]:
    """Return what is held, by name, with the least growth for each call that counts."""
    gc.collect()
    found = {"objects of Python": (float(sys.getallocatedblocks()), 1.0)}
    if sys.platform != "win32":
        found["bytes of the process"] = (_bytes(), _BYTES)
    if _is_accelerator(device):
        found["bytes of the device"] = (float(torch.accelerator.memory_allocated()), 1.0)
    return found


def _is_accelerator(device: str) -> bool:
    """Return whether a device is the one that computes beside this process, and keeps memory."""
    found = torch.accelerator.current_accelerator(check_available=True)
    return found is not None and found.type == device


if sys.platform != "win32":
    import resource

    def _bytes() -> float:
        """Return how much memory the process has for data; without /proc, its greatest."""
        statm = Path("/proc/self/statm")
        if statm.is_file():
            return float(int(statm.read_text().split()[5]) * resource.getpagesize())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(peak if sys.platform == "darwin" else peak * 1024)
