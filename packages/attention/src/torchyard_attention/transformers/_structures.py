"""Masks over the queries and keys of one call, made of transformers' patterns.

Indices count from the call's first query and first key; a :class:`Place` holds their
positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._intervals import BlockRows, Intervals, Visibility

__all__ = ["Band", "Chunks", "KeysBetween", "KeysListed", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """The positions of the queries and keys of a call in their sequences.

    Attributes:
        q_offset, kv_offset: the positions of the first query and the first key.
        q_length, kv_length: Sq and Sk.
    """

    q_offset: int
    kv_offset: int
    q_length: int
    kv_length: int

    @property
    def shift(self) -> int:
        """The position of the first query, counted in keys."""
        return self.q_offset - self.kv_offset

    def keys(self, start: int, stop: int) -> Place:
        """Return the place of the same queries and some of the keys."""
        return replace(self, kv_offset=self.kv_offset + start, kv_length=stop - start)


@dataclass(frozen=True, slots=True, repr=False)
class Band:
    """Show query q the keys from q + low to below q + high; None: no limit."""

    low: int | None = None
    high: int | None = None

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        visible = q_idx.new_ones((), dtype=torch.bool)
        if self.low is not None:
            visible = visible & (kv_idx - q_idx - self.low >= 0)
        if self.high is not None:
            visible = visible & (kv_idx - q_idx - self.high < 0)
        return visible

    def visibility(self, rows: BlockRows) -> Visibility:
        low, high = self.low, self.high
        return Visibility.between(
            rows,
            torch.zeros_like if low is None else lambda q: q + low,
            (lambda q: torch.full_like(q, rows.kv_length))
            if high is None
            else (lambda q: q + high),
        )

    def __and__(self, other: Band) -> Band:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Band(max(lows, default=None), min(highs, default=None))

    def moved(self, shift: int) -> Band:
        """Return the same band where queries count from ``shift`` instead of 0."""
        return Band(
            None if self.low is None else self.low + shift,
            None if self.high is None else self.high + shift,
        )

    def within(self, q_length: int, kv_length: int) -> Band:
        """Return the band without limits that no pair reaches: equal masks become equal bands."""
        low = None if self.low is None or q_length - 1 + self.low <= 0 else self.low
        high = None if self.high is None or self.high >= kv_length else self.high
        return Band(low, high)

    def reach(self, q_length: int, kv_length: int) -> tuple[int, int]:
        """Return the first key that any query sees, and one more than the last."""
        stop = kv_length if self.high is None else min(kv_length, q_length - 1 + self.high)
        start = 0 if self.low is None else min(max(0, self.low), max(0, stop))
        return start, max(start, stop)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chunks:
    """Show a query the keys of its own chunk: of ``size`` positions, the first after padding.

    Attributes:
        size: of a chunk.
        padding: integers [B]: where each sequence begins.
        place: of the queries and keys.
    """

    size: int
    padding: Tensor
    place: Place

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        first = self.padding[b]
        query, key = q_idx + self.place.q_offset - first, kv_idx + self.place.kv_offset - first
        return query // self.size == key // self.size

    def visibility(self, rows: BlockRows) -> Visibility:
        start, after = (self._start(row)[:, None, :, None] for row in (rows.first, rows.last))
        return Visibility(Intervals(start, after + self.size), Intervals(after, start + self.size))

    def _start(self, queries: Tensor) -> Tensor:
        """Return where the chunks of queries [Qb] begin, int64 [B, Qb], counted in keys."""
        first = self.padding.to(queries)[:, None]
        chunk = (queries + self.place.q_offset - first) // self.size
        return chunk * self.size + first - self.place.kv_offset


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeysBetween:
    """Show every query the keys of its batch from ``first`` to below ``end``, int64 [B]."""

    first: Tensor
    end: Tensor

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx >= self.first[b]) & (kv_idx < self.end[b])

    def visibility(self, rows: BlockRows) -> Visibility:
        seen = Intervals(self.first[:, None, None, None], self.end[:, None, None, None])
        return Visibility(seen, seen)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeysListed:
    """Show every query the keys that are listed: bool [B, Sk], and what holds them all."""

    listed: Tensor
    between: KeysBetween

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return self.listed[b, kv_idx]

    def visibility(self, rows: BlockRows) -> Visibility:
        some = self.between.visibility(rows).some
        return Visibility(some, Intervals(some.end, some.end))
