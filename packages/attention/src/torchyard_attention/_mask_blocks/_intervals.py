"""What a mask knows about its structure, by rows of blocks: intervals of keys.

A mask that knows its structure returns two sets of keys for each row of blocks: a superset of the
keys that any query of the row sees, and a subset of the keys that every query of the row sees. Only
the blocks between the two are evaluated. Both may be conservative: a ``some`` that is too large and
a ``whole`` that is too small cost evaluations and never change a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import torch
from torch import Tensor

# Above any key; the start of an empty interval that was sorted to the end.
_FAR: Final = 1 << 62

# So many intervals per row are kept; beyond, neighbours are joined or short ones dropped.
_MOST: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class BlockRows:
    """The rows of blocks that a visibility is computed for.

    Attributes:
        first: int64 [Qb]: each row's first query; ascending, without gaps, not always from 0.
        last: int64 [Qb]: its last one, below Sq and below the next row's first.
        height: the most queries that a row has.
        q_length, kv_length: Sq and Sk.
    """

    first: Tensor
    last: Tensor
    height: int
    q_length: int
    kv_length: int


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A set of keys for each batch, head and row of blocks: the union of [start, end).

    Attributes:
        start, end: int64 [B or 1, H or 1, Qb or 1, n], or fewer leading dimensions. An interval
            with end <= start is empty. Intervals may overlap, in any order, and leave the keys.
    """

    start: Tensor
    end: Tensor

    def __and__(self, other: Intervals) -> Intervals:
        start = torch.maximum(self.start[..., :, None], other.start[..., None, :])
        end = torch.minimum(self.end[..., :, None], other.end[..., None, :])
        return Intervals(start.flatten(-2), end.flatten(-2))

    def __or__(self, other: Intervals) -> Intervals:
        parts = (self.start, self.end, other.start, other.end)
        leading = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))  # type: ignore[no-untyped-call]
        start, end, more_start, more_end = (part.expand(*leading, part.shape[-1]) for part in parts)
        return Intervals(torch.cat([start, more_start], -1), torch.cat([end, more_end], -1))

    def merged(self) -> Intervals:
        """Return the same keys as disjoint intervals in ascending order, empty ones last."""
        if self.start.shape[-1] < 2:
            return self
        start, end = torch.broadcast_tensors(self.start, self.end)  # type: ignore[no-untyped-call]
        empty = end <= start
        start, order = torch.where(empty, _FAR, start).sort(dim=-1)
        end = torch.where(empty, -1, end).gather(-1, order)
        reached = end.cummax(dim=-1).values
        opens = torch.ones_like(start, dtype=torch.bool)
        opens[..., 1:] = start[..., 1:] > reached[..., :-1]
        group = opens.cumsum(dim=-1) - 1
        return Intervals(
            torch.full_like(start, _FAR).scatter_reduce(-1, group, start, "amin"),
            torch.full_like(end, -1).scatter_reduce(-1, group, end, "amax"),
        )

    def covering(self) -> Intervals:
        """Return merged intervals that hold these keys, and more if there are very many."""
        merged = self.merged()
        if merged.start.shape[-1] <= _MOST:
            return merged
        start, end = merged.start[..., :_MOST], merged.end[..., :_MOST].clone()
        end[..., -1] = merged.end[..., _MOST - 1 :].amax(dim=-1)
        return Intervals(start, end)

    def within(self) -> Intervals:
        """Return merged intervals of these keys; the longest ones if there are very many."""
        merged = self.merged()
        if merged.start.shape[-1] <= _MOST:
            return merged
        longest = (merged.end - merged.start).topk(_MOST, dim=-1).indices
        return Intervals(merged.start.gather(-1, longest), merged.end.gather(-1, longest)).merged()

    def clipped(self, length: int) -> Intervals:
        """Return the intervals cut to keys from 0 to ``length``."""
        return Intervals(self.start.clamp(0, length), self.end.clamp(0, length))


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """What the queries of each row of blocks see.

    Attributes:
        some: holds every key that any query of the row sees; it may hold more.
        whole: holds only keys that every query of the row sees; it may hold fewer.
    """

    some: Intervals
    whole: Intervals

    def __and__(self, other: Visibility) -> Visibility:
        return Visibility((self.some & other.some).covering(), (self.whole & other.whole).within())

    def __or__(self, other: Visibility) -> Visibility:
        return Visibility((self.some | other.some).covering(), (self.whole | other.whole).within())

    @classmethod
    def between(
        cls,
        rows: BlockRows,
        low: Callable[[Tensor], Tensor],
        high: Callable[[Tensor], Tensor],
    ) -> Visibility:
        """Describe a mask whose query q sees the keys low(q) <= k < high(q).

        Args:
            rows: the rows of blocks.
            low, high: from int64 [Qb] queries to int64 [Qb] keys; neither ever falls.
        """
        return cls(
            Intervals(low(rows.first)[:, None], high(rows.last)[:, None]),
            Intervals(low(rows.last)[:, None], high(rows.first)[:, None]),
        )

    @classmethod
    def of_queries(cls, rows: BlockRows, some: Tensor, every: Tensor) -> Visibility:
        """Describe a mask whose queries see all keys or none.

        Args:
            rows: the rows of blocks.
            some, every: bool [Qb]: whether some or every query of the row sees all keys.
        """
        start = torch.zeros_like(rows.first)[:, None]
        return cls(
            Intervals(start, rows.kv_length * some[:, None].long()),
            Intervals(start, rows.kv_length * every[:, None].long()),
        )


@runtime_checkable
class StructuredMask(Protocol):
    """A mask_mod that knows its structure."""

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        """Return whether a query sees a key, as any mask_mod."""

    def visibility(self, rows: BlockRows) -> Visibility | None:
        """Return the visibility by rows of blocks; None where it is unknown."""


def repeated(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return each index of int64 [n] lengths, repeated that often, and how many come before each.

    As repeat_interleave, which starts every thread that torch has even for two lengths.
    """
    total = lengths.cumsum(0)
    before = total - lengths
    count = int(total[-1]) if len(total) else 0
    marks = lengths.new_zeros(count + 1).index_add_(0, before, torch.ones_like(before))
    return marks[:count].cumsum(0) - 1, before


def causal_visibility(rows: BlockRows) -> Visibility:
    """Return what queries see that see their own position and those before."""
    return Visibility.between(rows, torch.zeros_like, lambda q: q + 1)


def nothing_whole(visibility: Visibility) -> Visibility:
    """Return what is left of a visibility where another mask may hide any key."""
    none = torch.zeros_like(visibility.some.start[..., :1])
    return Visibility(visibility.some, Intervals(none, none))


def visibility_of(mask_mod: Any, rows: BlockRows) -> Visibility | None:
    """Return the visibility of a mask_mod; None for a plain function."""
    return mask_mod.visibility(rows) if isinstance(mask_mod, StructuredMask) else None
