"""What kernels of ours tell of each call: whoever tries operators, else once the user."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from torchyard_mps._caller import caller

__all__ = ["Call", "ComputedOnCpuWarning", "recorded", "report"]


class ComputedOnCpuWarning(UserWarning):
    """The CPU computed an operator of the device; once for each that was registered."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of our kernels.

    Attributes:
        operator: of ATen, with its overload.
        copied: bytes to the CPU and back; 0 where the device computed.
    """

    operator: str
    copied: int = 0


_LOCK: Final = threading.Lock()
# Of all threads, since those of autograd compute the gradients that a trial wants.
_RECORDS: Final[list[list[Call]]] = []


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Record the calls of our kernels, and warn of none."""
    calls: list[Call] = []
    with _LOCK:
        _RECORDS.append(calls)
    try:
        yield calls
    finally:
        with _LOCK:
            # By identity: lists of equal calls are equal.
            _RECORDS[:] = [one for one in _RECORDS if one is not calls]


def report(call: Call, reason: str, warned: set[str]) -> None:
    """Record a call where calls are recorded; else warn of what the CPU computed, once.

    Args:
        call: what was computed.
        reason: why ours computes it.
        warned: operators that the user was warned of; changed.
    """
    with _LOCK:
        for calls in _RECORDS:
            calls.append(call)
        if _RECORDS or not call.copied or call.operator in warned:
            return
        warned.add(call.operator)
    text = (
        f"torchyard_mps: aten::{call.operator} is computed on the CPU; this call copied "
        f"{call.copied} bytes there and back, and waited for the device. {reason}. Further calls "
        "do the same without a warning"
    )
    # The user's line; a thread of autograd has none.
    file, line = caller() or (__file__, 1)
    warnings.warn_explicit(text, ComputedOnCpuWarning, file, line)
