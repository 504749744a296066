"""Which entry is dropped first: a number for each entry, the least of which goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["POLICIES", "Priority", "Use"]

# Uses between which a frequency halves.
_HALF_LIFE: Final = 10_000
# Of SLRU: an entry that was used again is protected.
_PROTECTED: Final = 1e18


@dataclass(slots=True)
class Use:
    """How an entry was used.

    Attributes:
        size: bytes.
        cost: seconds that computing it again takes.
        uses: how often it was used, decayed where the policy says so.
        last: number of the last use, counted over all entries.
    """

    size: int
    cost: float
    uses: float = 1.0
    last: int = 0


# (use, clock of evictions) -> priority.
Priority = Callable[[Use, float], float]


def _lru(use: Use, clock: float) -> float:
    return float(use.last)


def _slru(use: Use, clock: float) -> float:
    return use.last + (_PROTECTED if use.uses > 1 else 0.0)


def _lfu(use: Use, clock: float) -> float:
    # In units of uses: an entry loses half of them in each half-life that passes without one.
    return use.uses + use.last / _HALF_LIFE


def _gdsf(use: Use, clock: float) -> float:
    return clock + use.uses * use.cost / max(use.size, 1)


POLICIES: Final[Mapping[str, Priority]] = MappingProxyType(
    {"lru": _lru, "slru": _slru, "lfu": _lfu, "gdsf": _gdsf}
)
"""Name -> priority: least recently used; the same with used entries protected; least frequently
used, with frequencies that fade; and Greedy-Dual-Size-Frequency (Cherkasova 1998): what costs much
to compute, is small and is used often stays, and the clock of evictions lets the rest age."""
