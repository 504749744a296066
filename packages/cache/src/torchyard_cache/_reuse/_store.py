"""``Store``: pages, by the tokens in them and before, in memory and in tiers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch

from torchyard_cache._reuse._entries import Entries
from torchyard_cache._reuse._pages import Page, bytes_of, fits
from torchyard_cache._reuse._policies import POLICIES, page_cost
from torchyard_cache._reuse._stats import Stats
from torchyard_cache._reuse._tiers import Tier, pack, unpack

__all__ = ["Store"]


class Store:
    """Pages of one model's prompts.

    Args:
        budget: bytes of memory.
        policy: name of which entry is dropped first.
        ttl: seconds that an entry is kept.
        tiers: below memory.
        size: tokens of a page.
        sample: a page of any number of tokens: every page has tensors as it.
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
        sample: Page,
        stats: Stats,
        lock: threading.Lock,
    ) -> None:
        self.entries: Entries[Page] = Entries(budget, POLICIES[policy], ttl)
        # Seconds that computing a token takes.
        self.pace = 0.0
        self._tiers = tiers
        self._size = size
        self._sample = sample
        self._stats = stats
        self._lock = lock

    def find(self, chain: Sequence[str]) -> list[Page]:
        """Return the pages of the longest beginning of a chain that is held."""
        found: list[Page] = []
        for place, key in enumerate(chain):
            entry = self.entries.get(key)
            page = entry.value if entry is not None else self._below(chain, place)
            if page is None:
                break
            found.append(page)
        return found

    def leased(self, keys: Sequence[str]) -> AbstractContextManager[None]:
        """Keep pages while they are read."""
        return self.entries.leased(list(keys))

    def hold(self, chain: Sequence[str], place: int, page: Page) -> bool:
        """Hold a page, in memory and below; return whether there was room in memory."""
        if not self._put(chain, place, page):
            return False
        if self._tiers:
            data = pack(page)
            for tier in self._tiers:
                tier.put(chain[place], data)
        return True

    def drop(self, chain: Sequence[str]) -> None:
        """Drop the pages of a chain and all after them, which gave other tokens."""
        dropped = self.entries.drop(chain[0])
        for tier in self._tiers:
            for key in chain:
                tier.delete(key)
        with self._lock:
            self._stats.quarantined += dropped

    def count(self) -> None:
        """Write what is held into the counts, whose lock the caller has."""
        stats = self._stats
        stats.bytes, stats.entries = self.entries.bytes, len(self.entries)
        stats.evictions = self.entries.evictions
        for tier in self._tiers:
            stats.tier_errors[tier.name] = tier.errors

    def _below(self, chain: Sequence[str], place: int) -> Page | None:
        """Return a page of a lower tier, and hold it in memory."""
        for tier in self._tiers:
            data = tier.get(chain[place])
            if data is None:
                continue
            page = unpack(data, torch.device("cpu"))
            if page is None or not fits(page, self._sample, self._size):
                tier.delete(chain[place])
                with self._lock:
                    self._stats.quarantined += 1
                continue
            page = {name: tensor.to(self._sample[name].device) for name, tensor in page.items()}
            self._put(chain, place, page)
            with self._lock:
                self._stats.tier_hits[tier.name] += 1
            return page
        return None

    def _put(self, chain: Sequence[str], place: int, page: Page) -> bool:
        cost = page_cost(place * self._size, self._size) * max(self.pace, 1e-9)
        parent = chain[place - 1] if place else ""
        return self.entries.put(chain[place], page, bytes_of(page), cost, parent)
