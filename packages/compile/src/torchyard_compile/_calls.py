"""Where an op of torch's was called or compiled, and what computes it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import torch

__all__ = ["CallSite", "Calls"]

_INSIDE: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


@dataclass(frozen=True, slots=True)
class CallSite:
    """Calls of one form.

    Attributes:
        function: torch's function, such as ``scaled_dot_product_attention``; of a compiled product
            the operators that are computed with it.
        where: file and line of the first such call, outside of torch.
        calls: how many there were; of compiled products, how many there are in graphs.
        implementation: what computes them; empty where torch does, as without this package.
        reason: why that.
    """

    function: str
    where: str
    calls: int
    implementation: str
    reason: str

    def __str__(self) -> str:
        by = self.implementation or "left alone"
        return f"{self.function} ({self.where}, {self.calls} calls): {by}: {self.reason}"


class Calls:
    """Counts calls by function, form, and what came of them. Several threads may count at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Hashable, int] = {}
        self._first: dict[Hashable, tuple[str, str, str, str]] = {}

    def note(
        self,
        function: str,
        form: Hashable,
        implementation: str,
        reason: str,
        where: str | None = None,
    ) -> None:
        """Count a call; ``where`` it is made is looked up if it is not given."""
        key = function, form, implementation, reason
        with self._lock:
            if key in self._counts:
                self._counts[key] += 1
                return
            self._counts[key] = 1
            self._first[key] = function, where or _caller(), implementation, reason

    def sites(self) -> tuple[CallSite, ...]:
        """Return what was counted; what was rerouted comes first, the most frequent first."""
        with self._lock:
            found = [
                CallSite(function, where, self._counts[key], implementation, reason)
                for key, (function, where, implementation, reason) in self._first.items()
            ]
        return tuple(sorted(found, key=lambda site: (not site.implementation, -site.calls)))


def _caller() -> str:
    """Return the innermost place outside of torch and of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame = frame.f_back
    return "?" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
