"""``Entries``: what is held in memory, within a budget of bytes."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torchyard_cache._reuse._eviction._policies import Priority, Use

__all__ = ["Entries", "Entry"]

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Entry(Generic[_T]):
    """Something that is held.

    Attributes:
        key: of the entry.
        value: what is held; nobody changes it.
        use: size, cost and uses.
        parent: key of the entry without which this one cannot be found; empty for none.
        expires: on the clock of time.monotonic; infinity for never.
        children: keys of the entries that need this one.
        leases: how many calls read it now.
        version: of its place in the heap: older places are ignored.
    """

    key: str
    value: _T
    use: Use
    parent: str
    expires: float
    children: set[str] = field(default_factory=set)
    leases: int = 0
    version: int = 0


class Entries(Generic[_T]):
    """Entries by key within a budget; any number of threads may use them.

    An entry that others need, or that is leased, is not dropped. Dropping is O(log n): old places
    of an entry stay in the heap until they come up or outnumber the entries.

    Args:
        budget: bytes.
        priority: which entry goes first.
        ttl: seconds after which an entry is no longer found; infinity for never.
        dropped: called with each entry that is dropped.
    """

    def __init__(
        self,
        budget: int,
        priority: Priority,
        ttl: float,
        dropped: Callable[[Entry[_T]], None] = lambda entry: None,
    ) -> None:
        self.budget = budget
        self.bytes = 0
        self.evictions = 0
        self._priority = priority
        self._ttl = ttl
        self._dropped = dropped
        self._entries: dict[str, Entry[_T]] = {}
        self._heap: list[tuple[float, int, int, str]] = []
        self._clock = 0.0
        self._ticks = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Entry[_T] | None:
        """Return an entry, and note its use; None where there is none, or it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if entry.expires <= time.monotonic():
                self.drop(key)
                return None
            self._ticks += 1
            entry.use.uses += 1
            entry.use.last = self._ticks
            self._place(entry)
            return entry

    def put(self, key: str, value: _T, size: int, cost: float, parent: str = "") -> bool:
        """Hold a value; return whether it is held: not where it is larger than the budget."""
        with self._lock:
            if key in self._entries:
                return True
            if parent and parent not in self._entries:
                return False
            if not self._make_room(size, parent):
                return False
            self._ticks += 1
            use = Use(size, cost, 1.0, self._ticks)
            entry = Entry(key, value, use, parent, time.monotonic() + self._ttl)
            self._entries[key] = entry
            self.bytes += size
            if parent:
                self._entries[parent].children.add(key)
            self._place(entry)
            return True

    @contextmanager
    def leased(self, keys: list[str]) -> Iterator[None]:
        """Keep entries while they are read."""
        with self._lock:
            held = [self._entries[key] for key in keys if key in self._entries]
            for entry in held:
                entry.leases += 1
        try:
            yield
        finally:
            with self._lock:
                for entry in held:
                    entry.leases -= 1
                    if self._entries.get(entry.key) is entry:
                        self._place(entry)

    def drop(self, key: str) -> int:
        """Drop an entry and those that need it; return how many."""
        with self._lock:
            if key not in self._entries:
                return 0
            # A chain may be longer than Python's stack.
            found = [self._entries[key]]
            for entry in found:
                found += [self._entries[child] for child in entry.children]
            for entry in reversed(found):
                self._remove(entry)
            return len(found)

    def evict(self) -> bool:
        """Drop the entry that goes first; return whether there is one that nobody needs or reads.

        It counts as an eviction.
        """
        with self._lock, self._deferring() as deferred:
            return self._evict("", deferred)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            for entry in list(self._entries.values()):
                self._dropped(entry)
            self._entries.clear()
            self._heap.clear()
            self.bytes = 0

    def _make_room(self, size: int, keep: str) -> bool:
        if size > self.budget:
            return False
        with self._deferring() as deferred:
            while self.bytes + size > self.budget:
                if not self._evict(keep, deferred):
                    return False
            return True

    @contextmanager
    def _deferring(self) -> Iterator[list[Entry[_T]]]:
        """Collect entries that are passed over, and give them their places back."""
        deferred: list[Entry[_T]] = []
        try:
            yield deferred
        finally:
            for entry in deferred:
                self._place(entry)

    def _evict(self, keep: str, deferred: list[Entry[_T]]) -> bool:
        while self._heap:
            priority, _, version, key = heapq.heappop(self._heap)
            entry = self._entries.get(key)
            if entry is None or entry.version != version or entry.children:
                # Of an entry that others need, the place comes back with the last of them.
                continue
            if entry.leases or key == keep:
                deferred.append(entry)
                continue
            self._clock = max(self._clock, priority)
            self._remove(entry)
            self.evictions += 1
            return True
        return False

    def _remove(self, entry: Entry[_T]) -> None:
        del self._entries[entry.key]
        self.bytes -= entry.use.size
        parent = self._entries.get(entry.parent)
        if parent is not None:
            parent.children.discard(entry.key)
            if not parent.children:
                self._place(parent)
        self._dropped(entry)

    def _place(self, entry: Entry[_T]) -> None:
        entry.version += 1
        priority = self._priority(entry.use, self._clock)
        heapq.heappush(self._heap, (priority, entry.use.last, entry.version, entry.key))
        if len(self._heap) > 64 + 4 * len(self._entries):
            self._heap = [
                (self._priority(e.use, self._clock), e.use.last, e.version, e.key)
                for e in self._entries.values()
            ]
            heapq.heapify(self._heap)
