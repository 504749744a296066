"""The calls of ``new_group`` that every rank of a job has to make, as this process made them."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch.distributed as dist

from torchyard_collectives._torch_compat import GROUP_NAMING
from torchyard_collectives.flight._history import Creation
from torchyard_collectives.flight._record.sites import RawSite, capture, frames_of

__all__ = ["Creations"]

_MOST: Final = 1024


@dataclass(slots=True)
class _Call:
    name: str
    ranks: tuple[int, ...]
    entered: int
    over: bool
    site: RawSite


class Creations:
    """Wraps torch's function that names a group; :meth:`remove` restores it.

    torch counts the groups that all ranks make, and names them by the count. A rank that makes one
    less gives every later group another name than the others do. Nothing is seen where the default
    group was there before, nor on a torch without that function; it was tried on 2.13.
    """

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque(maxlen=_MOST)
        self._lock = threading.Lock()
        self._late = dist.is_initialized()
        self._torchs: Callable[..., Any] | None = GROUP_NAMING.current()
        if self._torchs is not None:
            GROUP_NAMING.replace(self._name)

    def remove(self) -> None:
        """Give torch its function back."""
        if self._torchs is not None and GROUP_NAMING.current() == self._name:
            GROUP_NAMING.replace(self._torchs)

    def made(self, name: str) -> None:
        """Note that a group of this process is complete."""
        with self._lock:
            for call in self._calls:
                call.over |= call.name == name

    def seen(self) -> tuple[Creation, ...] | None:
        """Return the calls as a dump holds them, oldest first; None where they are not known."""
        if self._torchs is None or self._late:
            return None
        with self._lock:
            calls = list(self._calls)
        return tuple(
            Creation(call.name, call.ranks, call.entered, call.over, frames_of(call.site))
            for call in calls
        )

    def _name(self, ranks: Sequence[int], use_hashed_name: bool = False, **more: Any) -> Any:
        """Stand for torch's function."""
        assert self._torchs is not None
        name = self._torchs(ranks, use_hashed_name=use_hashed_name, **more)
        # Groups that are named by their ranks are made by these alone.
        if use_hashed_name:
            return name
        with self._lock:
            if not ranks:
                # The default group, after which torch counts from zero.
                self._calls.clear()
                self._late = False
            elif not self._late:
                over = dist.get_rank() not in ranks
                site = capture(sys._getframe(1))
                call = _Call(str(name), tuple(ranks), time.monotonic_ns(), over, site)
                self._calls.append(call)
        return name
