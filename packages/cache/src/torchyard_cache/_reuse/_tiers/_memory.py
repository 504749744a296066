"""``MemoryTier``: entries in this process's memory, such as compressed ones."""

from __future__ import annotations

from torchyard import arguments
from torchyard_cache._reuse._eviction import POLICIES, Entries

__all__ = ["MemoryTier"]


class MemoryTier:
    """Bytes in this process's memory, within a budget; least recently used entries go first.

    ``CompressedTier(MemoryTier(4 << 30), "int8")`` holds about twice as many pages of bfloat16 as
    the memory that ``reuse`` has by itself, where pages are exact. It is a host's memory: below a
    model on an accelerator it holds what leaves the accelerator's.

    Args:
        budget: bytes.

    Raises:
        TypeError, ValueError: the budget does not fit.
    """

    name = "memory"

    def __init__(self, budget: int) -> None:
        budget = arguments.integer("MemoryTier", "budget", budget, least=1)
        self._held: Entries[bytes] = Entries(budget, POLICIES["lru"], float("inf"))
        self.errors = 0

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self._held.bytes

    def get(self, key: str) -> bytes | None:
        """Return what was put."""
        entry = self._held.get(key)
        return None if entry is None else entry.value

    def put(self, key: str, data: bytes) -> None:
        """Hold data, where they are not larger than the budget."""
        self._held.put(key, data, len(data), 0.0)

    def delete(self, key: str) -> None:
        """Forget data."""
        self._held.drop(key)
