"""``Store``: pages, by the tokens in them and before, in memory and in tiers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from torchyard_cache._reuse._eviction import POLICIES, Entries, TokenCosts
from torchyard_cache._reuse._pages import Page, States, bytes_of, fits
from torchyard_cache._reuse._stats import Stats
from torchyard_cache._reuse._tiers import LimitedTier, Tier, pack, unpack

__all__ = ["Found", "Store"]


@dataclass(frozen=True, slots=True)
class Found:
    """A beginning that can be restored.

    Attributes:
        pages: of it.
        states: after it, of layers that keep no tokens.
        known: pages that are held, some of which may come after the last states.
    """

    pages: list[Page]
    states: States
    known: int


class Store:
    """Pages of one model's prompts.

    Args:
        budget: bytes of memory.
        policy: name of which entry is dropped first.
        ttl: seconds that an entry is kept.
        tiers: below memory.
        size: tokens of a page.
        sample: a page of any number of tokens, and states: all others have tensors as these.
        stats, lock: counts, and what guards them.
    """

    def __init__(
        self,
        budget: int,
        policy: str,
        ttl: float,
        tiers: Sequence[Tier],
        *,
        size: int,
        sample: tuple[Page, States],
        stats: Stats,
        lock: threading.Lock,
    ) -> None:
        self.entries: Entries[Page] = Entries(budget, POLICIES[policy], ttl)
        self.costs = TokenCosts()
        self._tiers = [LimitedTier(tier) for tier in tiers]
        self._size = size
        self._page, self._states = sample
        self._stats = stats
        self._lock = lock

    def find(self, chain: Sequence[str]) -> Found:
        """Return the longest beginning of a chain that is held, with states where there are any."""
        pages: list[Page] = []
        for place, key in enumerate(chain):
            parent = chain[place - 1] if place else ""
            page = self._get(key, place, parent, self._page)
            if page is None:
                break
            pages.append(page)
        known = len(pages)
        if not self._states:
            return Found(pages, {}, known)
        for place in reversed(range(known)):
            states = self._get(_of_states(chain[place]), place, chain[place], self._states)
            if states is not None:
                return Found(pages[: place + 1], states, known)
        return Found([], {}, known)

    def leased(self, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Keep pages while they are read."""
        return self.entries.leased(list(keys))

    def hold(self, chain: Sequence[str], place: int, page: Page) -> bool:
        """Hold a page, in memory and below; return whether there was room in memory."""
        return self._hold(chain[place], place, chain[place - 1] if place else "", page)

    def hold_states(self, chain: Sequence[str], place: int, states: States) -> bool:
        """Hold the states after a page that is held."""
        return self._hold(_of_states(chain[place]), place, chain[place], states)

    def drop(self, chain: Sequence[str]) -> None:
        """Drop the pages of a chain and all after them, which gave other tokens."""
        dropped = self.entries.drop(chain[0])
        for tier in self._tiers:
            for key in chain:
                tier.delete(key)
                if self._states:
                    tier.delete(_of_states(key))
        with self._lock:
            self._stats.quarantined += dropped

    def count(self) -> None:
        """Write what is held into the counts, whose lock the caller has."""
        stats = self._stats
        stats.bytes, stats.entries = self.entries.bytes, len(self.entries)
        stats.evictions = self.entries.evictions
        for tier in self._tiers:
            stats.tier_errors[tier.name] = tier.errors

    def _get(self, key: str, place: int, parent: str, sample: Page | States) -> Page | None:
        """Return an entry, of memory or of a lower tier: then memory holds it, too."""
        entry = self.entries.get(key)
        if entry is not None:
            return entry.value
        for tier in self._tiers:
            data = tier.get(key, self._cost(place))
            if data is None:
                continue
            found = unpack(data, torch.device("cpu"))
            if found is None or not fits(found, sample, self._size):
                tier.delete(key)
                with self._lock:
                    self._stats.quarantined += 1
                continue
            found = {name: tensor.to(sample[name].device) for name, tensor in found.items()}
            self._put(key, place, parent, found)
            with self._lock:
                self._stats.tier_hits[tier.name] += 1
            return found
        return None

    def _hold(self, key: str, place: int, parent: str, tensors: Page | States) -> bool:
        if not self._put(key, place, parent, tensors):
            return False
        if self._tiers:
            data = pack(tensors)
            for tier in self._tiers:
                tier.put(key, data, self._cost(place))
        return True

    def _put(self, key: str, place: int, parent: str, tensors: Page | States) -> bool:
        return self.entries.put(key, tensors, bytes_of(tensors), self._cost(place), parent)

    def _cost(self, place: int) -> float:
        """Return the seconds that computing a page takes."""
        return self.costs.seconds(place * self._size, self._size)


def _of_states(key: str) -> str:
    return f"{key}-states"
