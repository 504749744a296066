"""Which pages of a cache each sequence has: plain Python, no tensors."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from torchyard_attention._errors import PagesExhaustedError


class Growth(NamedTuple):
    """What sequences need before they grow.

    Attributes:
        pages: how many pages.
        copies: (sequence, its shared last page) for each that must be copied before it is written.
    """

    pages: int
    copies: list[tuple[int, int]]


class PageBook:
    """Sequences, their lengths and pages, and how many sequences share a page.

    Attributes:
        page_size: keys per page.
        changes: counts the changes of any sequence.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self.page_size = page_size
        self.changes = 0
        # The last is taken first; page 0 goes first to a new cache.
        self._free = list(range(pages - 1, -1, -1))
        self._users = [0] * pages
        self._pages: dict[int, array[int]] = {}
        self._lengths: dict[int, int] = {}
        self._next = 0

    @property
    def free(self) -> int:
        """How many pages no sequence has."""
        return len(self._free)

    @property
    def shared(self) -> int:
        """How many pages several sequences have."""
        return sum(users > 1 for users in self._users)

    @property
    def sequences(self) -> tuple[int, ...]:
        """The sequences that are open."""
        return tuple(self._pages)

    def length(self, sequence: int) -> int:
        """Return how many keys a sequence has."""
        self.check((sequence,))
        return self._lengths[sequence]

    def pages(self, sequence: int) -> array[int]:
        """Return a sequence's pages, in order: int32, not to be changed."""
        return self._pages[sequence]

    def check(self, sequences: Sequence[int]) -> None:
        """Raise ValueError unless the sequences are open, and each is named once."""
        for sequence in sequences:
            if sequence not in self._pages:
                raise ValueError(
                    f"sequences: expected open sequences, got {sequence!r}, which was never "
                    f"opened, or is closed"
                )
        if len(set(sequences)) != len(sequences):
            raise ValueError(f"sequences: expected each once, got {list(sequences)}")

    def open(self) -> int:
        """Return a new, empty sequence. Its number is never used again."""
        return self._add(array("i"), 0)

    def fork(self, sequence: int) -> int:
        """Return a new sequence that has the same pages."""
        self.check((sequence,))
        pages = self._pages[sequence]
        for page in pages:
            self._users[page] += 1
        return self._add(pages[:], self._lengths[sequence])

    def close(self, sequence: int) -> None:
        """Forget a sequence; pages that only it had are free."""
        self.check((sequence,))
        self._release(self._pages.pop(sequence))
        del self._lengths[sequence]
        self.changes += 1

    def truncate(self, sequence: int, length: int) -> None:
        """Cut a sequence to its first ``length`` keys."""
        self.check((sequence,))
        if not 0 <= length <= self._lengths[sequence]:
            raise ValueError(
                f"length: expected 0 to {self._lengths[sequence]}, the keys of sequence "
                f"{sequence}, got {length}"
            )
        kept = -(-length // self.page_size)
        pages = self._pages[sequence]
        self._release(pages[kept:])
        del pages[kept:]
        self._lengths[sequence] = length
        self.changes += 1

    def missing(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        """Return how many pages more than are free sequences that were checked need to grow."""
        return max(0, self._need(sequences, counts).pages - self.free)

    def grow(self, sequences: Sequence[int], counts: Sequence[int]) -> list[tuple[int, int]]:
        """Lengthen sequences that were checked; all or none.

        Returns:
            (page, copy) for each page that must be copied before it is written.

        Raises:
            PagesExhaustedError: fewer pages are free than needed. Nothing changed.
        """
        need = self._need(sequences, counts)
        if need.pages > self.free:
            raise PagesExhaustedError(
                f"append: expected {need.pages} free pages for {sum(counts)} keys of "
                f"{len(sequences)} sequences, got {self.free} of {len(self._users)} pages of "
                f"{self.page_size} keys; close() or truncate() sequences, or make the cache with "
                f"more pages"
            )
        copied = []
        for sequence, page in need.copies:
            self._users[page] -= 1
            copy = self._pages[sequence][-1] = self._take()
            copied.append((page, copy))
        for sequence, count in zip(sequences, counts, strict=True):
            pages = self._pages[sequence]
            self._lengths[sequence] += count
            while len(pages) * self.page_size < self._lengths[sequence]:
                pages.append(self._take())
        self.changes += 1
        return copied

    def _need(self, sequences: Sequence[int], counts: Sequence[int]) -> Growth:
        total = 0
        copies = []
        left: dict[int, int] = {}
        for sequence, count in zip(sequences, counts, strict=True):
            pages, length = self._pages[sequence], self._lengths[sequence]
            total += -(-(length + count) // self.page_size) - len(pages)
            if count and length % self.page_size:
                page = pages[-1]
                users = left.setdefault(page, self._users[page])
                # The last of those that write to it keeps it.
                if users > 1:
                    left[page] = users - 1
                    copies.append((sequence, page))
        return Growth(total + len(copies), copies)

    def _add(self, pages: array[int], length: int) -> int:
        sequence = self._next
        self._next += 1
        self._pages[sequence] = pages
        self._lengths[sequence] = length
        self.changes += 1
        return sequence

    def _take(self) -> int:
        page = self._free.pop()
        self._users[page] = 1
        return page

    def _release(self, pages: array[int]) -> None:
        for page in reversed(pages):
            self._users[page] -= 1
            if self._users[page] == 0:
                self._free.append(page)
