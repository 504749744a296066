"""Which positions of a sequence each rank holds."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention import BlockMask, as_block_mask

Ranges = tuple[tuple[int, int], ...]

# No sequence is longer.
_MOST: Final = 1 << 48
# Each part is one rank's; more are a mistake, and would take minutes and all memory.
_MOST_PARTS: Final = 1 << 20


@dataclass(frozen=True)
class Sharding:
    """A sequence dealt out to parts, one part for each rank.

    A part holds its ranges one after the other, in ascending order; every position lies in one
    part. Parts may differ in length, and may be empty.

    Attributes:
        length: positions of the whole sequence.
        parts: each part's ranges [start, stop).
    """

    length: int
    parts: tuple[Ranges, ...]

    def __post_init__(self) -> None:
        length = arguments.integer("Sharding", "length", self.length, least=0, most=_MOST)
        parts = arguments.sequence("Sharding", "parts", self.parts, _ranges)
        # Plain numbers and tuples, of which equal ones have one text on every rank.
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "parts", parts)
        if not self.parts:
            raise ValueError("parts: expected at least one part, got none")
        for number, part in enumerate(self.parts):
            if any(start >= stop for start, stop in part) or list(part) != sorted(part):
                raise ValueError(
                    f"parts[{number}]: expected ranges [start, stop) in ascending order, none of "
                    f"them empty, got {part}"
                )
        reached = 0
        for start, stop in sorted(span for part in self.parts for span in part):
            if start != reached:
                raise ValueError(
                    f"parts: expected each position once, got position {min(start, reached)} "
                    f"{'twice' if start < reached else 'in no part'}"
                )
            reached = stop
        if reached != self.length:
            raise ValueError(
                f"parts: expected positions up to the length {self.length}, got up to {reached}"
            )

    @classmethod
    def contiguous(cls, length: int, parts: int, *, multiple: int = 1) -> Sharding:
        """Deal out one range to each part, as equal as can be.

        Args:
            length: positions of the whole sequence.
            parts: how many parts.
            multiple: all but the last range's end are multiples of this; a block mask's block size
                makes masks of parts cheap.
        """
        _check_counts(length, parts, multiple)
        blocks = -(-length // multiple)
        ends = [min(length, (blocks * (n + 1) // parts) * multiple) for n in range(parts)]
        starts = [0, *ends[:-1]]
        return cls(
            length,
            tuple(
                ((start, end),) if start < end else ()
                for start, end in zip(starts, ends, strict=True)
            ),
        )

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> Sharding:
        """Deal out one range to each part, of the given lengths."""
        lengths = arguments.sequence("Sharding", "lengths", lengths, _length, least=1)
        parts, start = [], 0
        for length in lengths:
            parts.append(((start, start + length),) if length else ())
            start += length
        return cls(start, tuple(parts))

    @classmethod
    def head_tail(cls, length: int, parts: int, *, multiple: int = 1) -> Sharding:
        """Deal out a range from the head and one from the tail to each part.

        Of a causal mask every part then has about the same work: a query at the tail sees what one
        at the head does not. Part n holds the n-th of 2 * parts ranges and the n-th from the end.
        Source: Striped and zigzag ring attention (arXiv 2311.09431), section 3.
        """
        _check_counts(length, parts, multiple)
        halves = cls.contiguous(length, 2 * parts, multiple=multiple).parts
        return cls(length, tuple(_joined((*halves[n], *halves[-1 - n])) for n in range(parts)))

    @classmethod
    def balanced(cls, block_mask: BlockMask, parts: int) -> Sharding:
        """Deal out rows of blocks so that every part sees about as many blocks of a mask.

        Every part gets as many rows, one more or less. Works for any mask: documents, windows and
        trees, where what a position costs does not follow from where it is.

        Args:
            block_mask: the whole sequence's mask, as many queries as keys; the same on all ranks.
            parts: how many parts.
        """
        mask = as_block_mask(block_mask)
        if mask is None:
            raise arguments.wrong_kind("Sharding.balanced", "block_mask", "a BlockMask", block_mask)
        length, keys = mask.seq_lengths
        if length != keys:
            raise ValueError(
                f"block_mask: expected as many queries as keys, got {length} and {keys}"
            )
        size = mask.BLOCK_SIZE[0]
        rows = -(-length // size)
        _check_counts(length, parts, size)
        work = mask.to_dense().sum(dim=(0, 1, 3)).tolist()
        most = -(-rows // parts)
        # The longest first, each to the part with the least work that has room.
        heap = [(0, 0, part) for part in range(parts)]
        taken: list[list[int]] = [[] for _ in range(parts)]
        for row in sorted(range(rows), key=lambda row: (-work[row], row)):
            done, count, part = heapq.heappop(heap)
            taken[part].append(row)
            if count + 1 < most:
                heapq.heappush(heap, (done + work[row], count + 1, part))
        spans = [[(r * size, min(length, r * size + size)) for r in sorted(part)] for part in taken]
        return cls(length, tuple(_joined(tuple(part)) for part in spans))

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Each part's positions."""
        return tuple(map(length_of, self.parts))

    @cached_property
    def text(self) -> str:
        """A short text that is equal for equal shardings, on any rank."""
        hashed = hashlib.blake2b(repr(self.parts).encode(), digest_size=8).hexdigest()
        return f"{self.length} positions in parts of {list(self.lengths)}, digest {hashed}"

    def positions(self, part: int, device: torch.device | str | None = None) -> Tensor:
        """Return where in the sequence a part's positions lie: int64 [length of the part].

        These are a model's position ids.
        """
        ranges = self._part_of("Sharding.positions", part)
        if device is not None:
            device = arguments.device("Sharding.positions", "device", device)
        return positions_of(ranges, device)

    def take(self, whole: Tensor, part: int, dim: int) -> Tensor:
        """Return a part of a tensor that holds the whole sequence in a dimension."""
        of = "Sharding.take"
        arguments.tensor(of, "whole", whole)
        ranges = self._part_of(of, part)
        dim = checked_dimension(of, "whole", whole, dim)
        if whole.shape[dim] != self.length:
            raise ValueError(
                f"whole: expected {self.length} positions in dimension {dim}, got shape "
                f"{list(whole.shape)}"
            )
        spans = [whole.narrow(dim, start, stop - start) for start, stop in ranges]
        return torch.cat(spans, dim) if spans else whole.narrow(dim, 0, 0)

    def join(self, parts: Sequence[Tensor], dim: int) -> Tensor:
        """Return the whole of a tensor from all its parts."""
        of = "Sharding.join"
        parts = arguments.sequence(of, "parts", parts, arguments.tensor, length=len(self.parts))
        dim = checked_dimension(of, "parts[0]", parts[0], dim)
        for number, (tensor, length) in enumerate(zip(parts, self.lengths, strict=True)):
            if tensor.ndim != parts[0].ndim:
                raise ValueError(
                    f"parts[{number}]: expected {parts[0].ndim} dimensions, as parts[0], got shape "
                    f"{list(tensor.shape)}"
                )
            if tensor.shape[dim] != length:
                raise ValueError(
                    f"parts[{number}]: expected {length} positions in dimension {dim}, got shape "
                    f"{list(tensor.shape)}"
                )
        return in_order(self.parts, parts, dim)

    def _part_of(self, of: str, part: object) -> Ranges:
        number = arguments.integer(of, "part", part, least=0, most=len(self.parts) - 1)
        return self.parts[number]


def checked_dimension(of: str, name: str, tensor: Tensor, dim: object) -> int:
    """Return a dimension of a tensor, counted from the front."""
    found = arguments.integer(of, "dim", dim)
    if not -tensor.ndim <= found < tensor.ndim:
        raise ValueError(
            f"{of}: dim: expected a dimension of {name} {list(tensor.shape)}, got {found}"
        )
    return found % tensor.ndim


def length_of(ranges: Ranges) -> int:
    """Return how many positions ranges hold."""
    return sum(stop - start for start, stop in ranges)


def positions_of(ranges: Ranges, device: torch.device | str | None = None) -> Tensor:
    """Return the positions of ranges: int64."""
    spans = [torch.arange(start, stop, device=device) for start, stop in ranges]
    return torch.cat(spans) if spans else torch.empty(0, dtype=torch.int64, device=device)


def in_order(parts: Sequence[Ranges], tensors: Sequence[Tensor], dim: int) -> Tensor:
    """Return the parts' positions in ascending order, from tensors that hold one part each."""
    spans = sorted((span, number) for number, part in enumerate(parts) for span in part)
    if not spans:
        return tensors[0]
    offsets = [0] * len(parts)
    pieces = {}
    for number, part in enumerate(parts):
        for start, stop in part:
            pieces[start, number] = tensors[number].narrow(dim, offsets[number], stop - start)
            offsets[number] += stop - start
    chosen = [pieces[start, number] for (start, _), number in spans]
    return chosen[0] if len(chosen) == 1 else torch.cat(chosen, dim)


def out_of_order(parts: Sequence[Ranges], tensor: Tensor, dim: int) -> list[Tensor]:
    """Return each part's share of a tensor that holds all their positions in ascending order."""
    spans = sorted((span, number) for number, part in enumerate(parts) for span in part)
    shares: list[list[Tensor]] = [[] for _ in parts]
    reached = 0
    for (start, stop), number in spans:
        shares[number].append(tensor.narrow(dim, reached, stop - start))
        reached += stop - start
    return [
        torch.cat(share, dim) if share else tensor.narrow(dim, 0, 0).contiguous()
        for share in shares
    ]


def merged(parts: Sequence[Ranges]) -> Ranges:
    """Return the ranges of several parts in ascending order, neighbours joined."""
    return _joined(tuple(sorted(span for part in parts for span in part)))


def _joined(ranges: Ranges) -> Ranges:
    joined: list[tuple[int, int]] = []
    for start, stop in ranges:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


def _length(of: str, name: str, value: object) -> int:
    return arguments.integer(of, name, value, least=0, most=_MOST)


def _ranges(of: str, name: str, value: object) -> Ranges:
    return arguments.sequence(of, name, value, _range, expected="a list or a tuple of ranges")


def _range(of: str, name: str, value: object) -> tuple[int, int]:
    start, stop = arguments.sequence(
        of, name, value, _length, expected="a range [start, stop)", length=2
    )
    return start, stop


def _check_counts(length: int, parts: int, multiple: int) -> None:
    for name, value, least, most in (
        ("length", length, 0, _MOST),
        ("parts", parts, 1, _MOST_PARTS),
        ("multiple", multiple, 1, _MOST),
    ):
        arguments.integer("Sharding", name, value, least=least, most=most)
