"""Faults that the device has found and nobody has read yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_mps._caller import caller
from torchyard_mps._launch import THREADS, Launch, groups_for, metal_text
from torchyard_mps._runner import run

__all__ = ["IndexRangeError", "check", "errors", "raise_pending", "synchronize"]

# Launches whose faults are unread at once. Each holds its indices in memory.
_MOST_PENDING: Final = 1024
_MOST_SHOWN: Final = 5


class IndexRangeError(IndexError):
    """An operator was given an index outside of its dimension; nothing outside was touched."""


@dataclass(frozen=True, slots=True)
class _Check:
    """A launch whose faults are unread."""

    operator: str
    dimension: str
    size: int
    least: int
    index: Tensor
    fault: Tensor
    line: str

    def text(self, count: int, place: int) -> str:
        value = int(self.index.flatten()[place])
        where = [int(part) for part in torch.unravel_index(torch.tensor(place), self.index.shape)]
        several = f"; {count} of {self.index.numel()} indices are outside" if count > 1 else ""
        return (
            f"{self.operator}: index: expected {self.least} to {self.size - 1} in {self.dimension} "
            f"of size {self.size}, got {value} at {where}{several}; called {self.line}"
        )


class _Pending:
    """The unread checks of all threads: a gradient's are launched by threads of autograd."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: list[_Check] = []
        self.sync = False

    def add(self, check: _Check) -> bool:
        """Keep a check; return whether all of them are to be read now."""
        with self._lock:
            self._checks.append(check)
            return self.sync or not check.size or len(self._checks) >= _MOST_PENDING

    def take(self) -> list[_Check]:
        """Return the checks, and keep none."""
        with self._lock:
            checks, self._checks = self._checks, []
        return checks


_PENDING: Final = _Pending()


@contextmanager
def errors(*, sync: bool) -> Iterator[None]:
    """Say when faults that the device found are raised.

    Args:
        sync: True: by the call that has the fault, which waits for the device, so that a debugger
            stops there. False, as without this: at the next synchronisation, which is
            ``torchyard_mps.synchronize()``, a copy to the CPU, a number that is read, or the end of
            ``torchyard_mps.checked()``. Holds for all threads, and so does a synchronisation: a
            gradient's operators are called by threads of autograd.

    Raises:
        IndexRangeError: when the block ends, for faults in it that nobody has read.
    """
    sync = arguments.boolean("errors", "sync", sync)
    before, _PENDING.sync = _PENDING.sync, sync
    try:
        yield
        raise_pending()
    finally:
        _PENDING.sync = before


def synchronize() -> None:
    """Wait for the device, and raise what it found.

    Raises:
        IndexRangeError: an index was outside of its dimension; with operator, index, size and the
            line that called.
    """
    if torch.backends.mps.is_available():
        torch.mps.synchronize()
    raise_pending()


def raise_pending() -> None:
    """Read the faults of all launches, in one copy, and raise those that there are."""
    checks = _PENDING.take()
    if not checks:
        return
    faults = torch.stack([one.fault for one in checks]).cpu().tolist()
    found = [
        check.text(count % 2**32, place % 2**32)
        for check, (count, place) in zip(checks, faults, strict=True)
        if count
    ]
    if not found:
        return
    rest = len(found) - _MOST_SHOWN
    lines = [*found[:_MOST_SHOWN], *([f"and {rest} more calls"] if rest > 0 else [])]
    raise IndexRangeError("\n".join(lines))


def check(operator: str, index: Tensor, size: int, dimension: str, *, wraps: bool) -> Tensor:
    """Check an operator's indices on their device, and return them with 0 for those outside.

    Args:
        operator: its name, for messages.
        index: of any shape.
        size: of the dimension that is indexed.
        dimension: what that is, for messages.
        wraps: whether indices from -size on count from the end.

    Raises:
        IndexRangeError: an index is outside, and faults are raised at once; or the dimension has no
            element, so that no index can stand for it.
    """
    given = index.detach().to(torch.int64).contiguous()
    least = -size if wraps else 0
    if not given.numel():
        return index
    safe = torch.empty_like(given)
    fault = torch.tensor([0, -1], dtype=torch.int32, device=index.device)
    sizes = (
        torch.tensor(number, dtype=torch.int64, device=index.device)
        for number in (given.numel(), least, size)
    )
    groups = (groups_for(given.numel()), 1)
    buffers = (*sizes, given, safe, fault)
    source = metal_text("indices")
    run(Launch(source, "check_indices", groups, THREADS, buffers, (4,), (5,)))
    if _PENDING.add(_Check(operator, dimension, size, least, given, fault, _line())):
        raise_pending()
    return safe.to(index.dtype)


def _line() -> str:
    """Return where the user called, as a message says it."""
    found = caller()
    if found is None:
        return "in a gradient's computation, by a thread of autograd"
    return f"at {found[0]}:{found[1]}"
