"""``LimitedTier``: a tier that is asked while it saves more time than it takes."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import Final, TypeVar

from torchyard_cache._reuse._tiers._tier import Tier

__all__ = ["LimitedTier"]

_T = TypeVar("_T")

# Seconds beyond what its pages are worth that a tier may take before it is left alone.
_MOST: Final = 0.5
# And the share of all time that it may take for nothing, as for entries that it does not have.
_SHARE: Final = 0.05
# Seconds for which it is left alone.
_PAUSE: Final = 30.0


class LimitedTier:
    """A tier, left alone for 30 seconds where it takes longer than computing its entries would.

    A server may answer every request in time and still be too far away for a model whose pages are
    computed sooner. What requests take is set against what the entries cost: once a tier has taken
    half a second more, and 5 % of the time since, a warning says so. It may be used by several
    threads.

    Args:
        tier: what is asked.
        clock: seconds.
    """

    def __init__(self, tier: Tier, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = tier.name
        self._tier = tier
        self._clock = clock
        self._lock = threading.Lock()
        self._times_left_alone = 0
        self._until = 0.0
        # Seconds taken beyond the entries' worth, when that was counted last.
        self._excess, self._counted = 0.0, clock()

    @property
    def errors(self) -> int:
        """Requests that failed or came too late, and how often it was left alone."""
        return self._tier.errors + self._times_left_alone

    def get(self, key: str, worth: float) -> bytes | None:
        """Return what the tier has; computing it takes ``worth`` seconds."""
        data, seconds = self._timed(lambda: self._tier.get(key))
        self._count(seconds, worth if data is not None else 0.0)
        return data

    def put(self, key: str, data: bytes, worth: float) -> None:
        """Give the tier data that took ``worth`` seconds to compute."""
        _, seconds = self._timed(lambda: self._tier.put(key, data))
        self._count(seconds, worth)

    def delete(self, key: str) -> None:
        """Let the tier forget data, also while it is left alone."""
        self._tier.delete(key)

    def _timed(self, request: Callable[[], _T]) -> tuple[_T | None, float]:
        begun = self._clock()
        if begun < self._until:
            return None, 0.0
        return request(), self._clock() - begun

    def _count(self, seconds: float, worth: float) -> None:
        with self._lock:
            now = self._clock()
            free = _SHARE * (now - self._counted)
            self._excess = max(0.0, self._excess + seconds - worth - free)
            self._counted = now
            if self._excess < _MOST:
                return
            excess, self._excess = self._excess, 0.0
            self._until = now + _PAUSE
            self._times_left_alone += 1
        warnings.warn(
            f"torchyard_cache: tier {self.name}: it took {excess:.1f} s longer than computing its "
            f"pages would have, and is left alone for {_PAUSE:g} s",
            stacklevel=2,
        )
