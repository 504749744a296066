"""From a mask's structure to mask blocks, in time and memory linear in the blocks that are touched.

Blocks that are hidden or fully visible by the structure are not evaluated. The bits of the others
also follow from the structure where it is exact; where it is not, the mask's program is evaluated
on these blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._cost import check_memory
from torchyard_attention._mask_blocks._evaluation import block_bits, first_slots, visible_bytes
from torchyard_attention._mask_blocks._intervals import BlockRows, Intervals, Visibility, repeated
from torchyard_attention.contract import MaskBlocks

# Blocks, queries and words of 64 bits that are looked at together; a row of blocks is never cut.
# They fit a core's L2, and torch runs steps of less than 2^15 elements on one thread: on a machine
# that does something else as well, waiting for a second one took forty times as long as the work.
_BLOCKS: Final = 1 << 14
_QUERIES: Final = 1 << 14
_WORDS: Final = 1 << 14

# With more intervals per query, evaluating the program costs no more.
_MOST_EXACT: Final = 16

# The intervals of a row of blocks, while they are put in order; a listed block's number, twice.
_BYTES_PER_ROW: Final = 64
_BYTES_PER_BLOCK: Final = 8

# Bytes of bits that are reserved before it is known that they are needed.
_RESERVED: Final = 1 << 28


def rows_of(sizes: tuple[int, int, int, int], height: int, device: torch.device) -> BlockRows:
    """Return the rows of blocks of a mask of sizes (Bm, Hm, Sq, Sk)."""
    q_length, kv_length = sizes[2:]
    first = torch.arange(0, q_length, height, device=device)
    last = (first + (height - 1)).clamp(max=q_length - 1)
    return BlockRows(first, last, height, q_length, kv_length)


def blocks_within(
    text: str,
    captured: tuple[Tensor, ...],
    visibility: Callable[[BlockRows], Visibility | None],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks | None:
    """Return a mask as blocks, the same bit by bit as ``_mask_blocks.blocks_of``; None if
    its structure is unknown.

    Args:
        text: the mask's program.
        captured: its captured tensors.
        visibility: returns what is known about the mask.
        sizes: (Bm, Hm, Sq, Sk).
        block_size: (BQ, BK).
        device: of the result.

    Raises:
        ValueError: it takes more memory than there is.
    """
    rows_count = sizes[0] * sizes[1] * -(-sizes[2] // block_size[0])
    check_memory(sizes, block_size, rows_count * _BYTES_PER_ROW, device)
    known = visibility(rows_of(sizes, block_size[0], device))
    if known is None:
        return None
    ranges = _ranges(known, sizes, block_size)
    counts = (ranges.some.end - ranges.some.start).clamp(min=0).sum(dim=-1)
    unsure = int(counts.sum() - (ranges.whole.end - ranges.whole.start).clamp(min=0).sum())
    check_memory(
        sizes,
        block_size,
        rows_count * _BYTES_PER_ROW
        + int(counts.sum()) * _BYTES_PER_BLOCK
        + max(0, unsure) * block_size[0] * -(-block_size[1] // 8),
        device,
    )
    store = _Bits.reserve(max(0, unsure), block_size, device)
    q_blocks = -(-sizes[2] // block_size[0])
    exact: _Exact | None = None
    partial, full = _Columns(device), _Columns(device)
    for first, last in _chunks(counts, sizes, block_size):
        row, column = _listed(ranges.some, first, last)
        whole = _inside(ranges.whole, row, column)
        unsure_at = (~whole).nonzero().squeeze(1)
        place = _place(
            row.index_select(0, unsure_at), column.index_select(0, unsure_at), sizes[1], q_blocks
        )
        span = _span(first, last, q_blocks)
        if exact is None or exact.span != span:
            exact = _Exact(visibility, span, sizes, block_size, device)
        kinds = whole.to(torch.uint8) * _FULL
        if exact.known:
            kinds[unsure_at] = exact.write(place, store)
        else:
            parts = block_bits(text, captured, place, (sizes[2], sizes[3]), block_size)
            kinds[unsure_at] = store.sort_out(parts, block_size[1])
        partial.add(row, column, kinds == _PARTIAL, first, last)
        full.add(row, column, kinds == _FULL, first, last)
    shape = (*sizes[:2], q_blocks)
    kv_num_blocks, kv_indices = partial.lists(shape)
    full_kv_num_blocks, full_kv_indices = full.lists(shape)
    return MaskBlocks(
        block_size=block_size,
        kv_num_blocks=kv_num_blocks,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_num_blocks,
        full_kv_indices=full_kv_indices,
        bits=store.taken(),
        first_partial=first_slots(kv_num_blocks),
    )


_HIDDEN, _PARTIAL, _FULL = 0, 1, 2


class _Bits:
    """The bits of partial blocks, written one after the other."""

    def __init__(self, bits: Tensor) -> None:
        self._bits = bits
        self._used = 0

    @classmethod
    def reserve(cls, blocks: int, block_size: tuple[int, int], device: torch.device) -> _Bits:
        """Reserve room for ``blocks`` blocks, or for fewer where that is very much."""
        rows, row_bytes = block_size[0], -(-block_size[1] // 8)
        fitting = min(blocks, max(1, _RESERVED // (rows * row_bytes)))
        return cls(torch.empty((fitting, rows, row_bytes), dtype=torch.uint8, device=device))

    def sort_out(self, parts: Iterator[Tensor], keys: int) -> Tensor:
        """Keep the bits of blocks that are partial and return each block's kind.

        Args:
            parts: the bits of some blocks at a time.
            keys: BK.
        """
        device = self._bits.device
        pattern = visible_bytes(keys, device).expand(1, self._bits.shape[1], -1)
        every = _words(pattern.contiguous())
        kinds = [torch.zeros(0, dtype=torch.uint8, device=device)]
        for bits in parts:
            words = _words(bits)
            full = (words == every).all(dim=1)
            shown = words.any(dim=1).to(torch.bool)
            self.keep(bits[shown & ~full])
            kinds.append(shown.to(torch.uint8) + full.to(torch.uint8))
        return torch.cat(kinds)

    def keep(self, bits: Tensor) -> None:
        """Keep the bits of the next partial blocks."""
        end = self._used + len(bits)
        if end > len(self._bits):
            larger = self._bits.new_empty((max(end, 2 * len(self._bits)), *bits.shape[1:]))
            larger[: self._used] = self._bits[: self._used]
            self._bits = larger
        _words(self._bits[self._used : end]).copy_(_words(bits))
        self._used = end

    def taken(self) -> Tensor:
        """Return what was kept; never more than twice its memory stays reserved."""
        bits = self._bits[: self._used]
        return bits if 2 * self._used >= len(self._bits) else bits.clone()


class _Exact:
    """What each query sees, where the structure knows it.

    Attributes:
        span: the rows of blocks [first, last) whose queries it describes.
        known: whether it is known of all of them.
    """

    def __init__(
        self,
        visibility: Callable[[BlockRows], Visibility | None],
        span: tuple[int, int],
        sizes: tuple[int, int, int, int],
        block_size: tuple[int, int],
        device: torch.device,
    ) -> None:
        self.span = span
        self.known = False
        self._block_size = block_size
        height, (q_length, kv_length) = block_size[0], sizes[2:]
        query = torch.arange(span[0] * height, min(span[1] * height, q_length), device=device)
        told = visibility(BlockRows(query, query, 1, q_length, kv_length))
        if told is None:
            return
        some, whole = (_canonical(part, kv_length) for part in (told.some, told.whole))
        self.known = some.start.shape[-1] <= _MOST_EXACT and all(
            torch.equal(a, b) for a, b in ((some.start, whole.start), (some.end, whole.end))
        )
        if self.known:
            self._start, self._end = (
                self._by_row(bound, query.shape[0]) for bound in (some.start, some.end)
            )

    def _by_row(self, bound: Tensor, queries: int) -> Tensor:
        """Return [B or 1, H or 1, rows of blocks, BQ, n]; queries beyond the last see nothing."""
        height = self._block_size[0]
        whole = bound[(None,) * (4 - bound.ndim)]
        whole = whole.expand(-1, -1, queries, -1)
        padded = torch.nn.functional.pad(whole, (0, 0, 0, -queries % height))
        return padded.view(*whole.shape[:2], -(-queries // height), height, whole.shape[-1])

    def write(self, place: tuple[Tensor, Tensor, Tensor, Tensor], store: _Bits) -> Tensor:
        """Write the bits of those blocks that are partial, and return each block's kind.

        Args:
            place: int64 [n] each: the blocks' batches, heads, rows and columns.
            store: keeps the bits.
        """
        height, keys = self._block_size
        words = -(-keys // 64)
        chunk = max(1, _WORDS // (height * words))
        b, h, row, column = place
        batches, heads, rows = self._start.shape[:3]
        at = row - self.span[0]
        if heads > 1:
            at = at + h * rows
        if batches > 1:
            at = at + b * (heads * rows)
        starts, ends = (bound.flatten(0, 2).flatten(1) for bound in (self._start, self._end))
        offset = torch.arange(0, 64 * words, 64, device=row.device)
        kinds = [torch.zeros(0, dtype=torch.uint8, device=row.device)]
        for first in range(0, row.shape[0], chunk):
            part = slice(first, first + chunk)
            origin = (column[part] * keys)[:, None]
            # Places in the block, those beyond it cut off.
            start = (starts.index_select(0, at[part]) - origin).clamp_(0, keys)
            end = (ends.index_select(0, at[part]) - origin).clamp_(0, keys)
            shown = (end - start).sum(dim=1)
            kind = (shown > 0).to(torch.uint8) + (shown == height * keys).to(torch.uint8)
            some = kind == _PARTIAL
            if not bool(some.all()):
                start, end = start[some], end[some]
            shape = (-1, height, self._start.shape[-1])
            bits = _bits_between(start.view(shape), end.view(shape), offset)
            store.keep(bits[..., : -(-keys // 8)])
            kinds.append(kind)
        return torch.cat(kinds)


def _bits_between(start: Tensor, end: Tensor, offset: Tensor) -> Tensor:
    """Set the bits of the union of [start, end): uint8 [..., bytes] from int64 [..., n].

    ``offset`` is the first key of each word.
    """
    result: Tensor | None = None
    for low, high in zip(start.unbind(-1), end.unbind(-1), strict=True):
        before, until = (_ones((bound[..., None] - offset).clamp_(0, 64)) for bound in (low, high))
        bits = until.bitwise_and_(before.bitwise_not_())
        result = bits if result is None else result.bitwise_or_(bits)
    assert result is not None, "a visibility has at least one interval"
    bytes_ = result.view(torch.uint8)
    if sys.byteorder == "big":
        bytes_ = bytes_.view(*result.shape, 8).flip(-1).flatten(-2)
    return bytes_


def _ones(count: Tensor) -> Tensor:
    """Return words whose lowest ``count`` bits, 0 to 64, are 1."""
    # A shift by 64 is outside of what every device defines, so one is done in two steps.
    half = count.bitwise_right_shift(1)
    words = torch.ones_like(count).bitwise_left_shift_(half).bitwise_left_shift_(count - half)
    return words.sub_(1)


def _canonical(intervals: Intervals, length: int) -> Intervals:
    """Return the same keys in the one form that equal sets have."""
    merged = intervals.merged().clipped(length)
    start, end = torch.broadcast_tensors(merged.start, merged.end)  # type: ignore[no-untyped-call]
    empty = end <= start
    return Intervals(start.masked_fill(empty, 0), end.masked_fill(empty, 0))


class _Columns:
    """Lists of blocks, gathered chunk by chunk of rows."""

    def __init__(self, device: torch.device) -> None:
        self._counts = [torch.zeros(0, dtype=torch.int32, device=device)]
        self._columns = [torch.zeros(0, dtype=torch.int32, device=device)]

    def add(self, row: Tensor, column: Tensor, taken: Tensor, first: int, last: int) -> None:
        """Add the taken blocks of rows [first, last)."""
        # index_select, here and elsewhere, because indexing starts every thread that torch has.
        places = taken.nonzero().squeeze(1)
        counts = torch.bincount(row.index_select(0, places) - first, minlength=last - first)
        self._counts.append(counts.to(torch.int32))
        self._columns.append(column.index_select(0, places).to(torch.int32))

    def lists(self, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
        """Return the counts [Bm, Hm, Qb] and the lists, as wide as the longest one."""
        counts = torch.cat(self._counts)
        width = int(counts.max()) if counts.numel() else 0
        lists = counts.new_zeros((len(counts), width))
        used = torch.arange(width, device=counts.device) < counts[:, None]
        lists.masked_scatter_(used, torch.cat(self._columns))
        return counts.view(shape), lists.view(*shape, width)


def _ranges(
    visibility: Visibility, sizes: tuple[int, int, int, int], block_size: tuple[int, int]
) -> Visibility:
    """Return the visibility in blocks, for every row of blocks [Bm * Hm * Qb, n]."""
    (batch, heads, q_length, kv_length), (rows, keys) = sizes, block_size
    q_blocks = -(-q_length // rows)

    def spread(keys_of_row: Tensor) -> Tensor:
        padded = keys_of_row[(None,) * (4 - keys_of_row.ndim)]
        for what, told, wanted in zip(
            ("batch", "head"), padded.shape, (batch, heads), strict=False
        ):
            if told != 1 and told < wanted:
                raise ValueError(
                    f"create_block_mask: mask_mod: expected lengths, ids or offsets for each "
                    f"{what} of {wanted}, got those of {told}; make the mask from one per {what}"
                )
        narrowed = padded[:batch, :heads]
        return narrowed.expand(batch, heads, q_blocks, -1).flatten(0, 2)

    some = visibility.some.merged().clipped(kv_length)
    whole = visibility.whole.merged().clipped(kv_length)
    # A block that the end of a sequence cuts is never full.
    cut = torch.arange(q_blocks, device=whole.end.device) * rows + rows > q_length
    whole_end = whole.end.div(keys, rounding_mode="floor").masked_fill(cut[:, None], 0)
    some_start = some.start.div(keys, rounding_mode="floor")
    # Intervals that share no key may share a block.
    return Visibility(
        Intervals(
            spread(some_start), spread(torch.where(some.end > some.start, -(-some.end // keys), 0))
        ).merged(),
        Intervals(spread(-(-whole.start // keys)), spread(whole_end)),
    )


def _chunks(
    counts: Tensor, sizes: tuple[int, int, int, int], block_size: tuple[int, int]
) -> list[tuple[int, int]]:
    """Cut the rows, counted through batches and heads, into runs [first, last) of bounded size."""
    row = torch.arange(len(counts), device=counts.device)
    parts = (counts.cumsum(0) - 1).div(_BLOCKS, rounding_mode="floor")
    cut = parts[1:] != parts[:-1]
    if sizes[2] > _QUERIES:
        # A run lies within a head.
        q_blocks = -(-sizes[2] // block_size[0])
        cut |= row[1:] % q_blocks % max(1, _QUERIES // block_size[0]) == 0
    ends = [*(cut.nonzero().squeeze(1) + 1).tolist(), len(counts)]
    return [pair for pair in zip([0, *ends], ends, strict=False) if pair[0] < pair[1]]


def _span(first: int, last: int, q_blocks: int) -> tuple[int, int]:
    """Return the rows of blocks within a head that rows [first, last) of all heads hold."""
    if first // q_blocks == (last - 1) // q_blocks:
        return first % q_blocks, (last - 1) % q_blocks + 1
    return 0, q_blocks


def _place(
    row: Tensor, column: Tensor, heads: int, q_blocks: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return batch, head, row within the head and column of blocks."""
    head = row.div(q_blocks, rounding_mode="floor")
    return head.div(heads, rounding_mode="floor"), head % heads, row - head * q_blocks, column


def _listed(ranges: Intervals, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return row and column of every block in the ranges of rows [first, last), in order."""
    start, end = ranges.start[first:last], ranges.end[first:last]
    lengths = (end - start).clamp(min=0).flatten()
    which, skipped = repeated(lengths)
    offset = torch.arange(which.numel(), device=start.device) - skipped.index_select(0, which)
    row = which.div(max(1, start.shape[-1]), rounding_mode="floor") + first
    return row, start.flatten().index_select(0, which) + offset


def _inside(ranges: Intervals, row: Tensor, column: Tensor) -> Tensor:
    """Return which blocks lie in the ranges of their row."""
    inside = torch.zeros_like(column, dtype=torch.bool)
    for start, end in zip(ranges.start.unbind(-1), ranges.end.unbind(-1), strict=True):
        inside |= (column >= start.index_select(0, row)) & (column < end.index_select(0, row))
    return inside


def _words(bits: Tensor) -> Tensor:
    """Return uint8 [n, BQ, bytes] as [n, any], in larger words where they fit."""
    flat = bits.flatten(1).contiguous()
    return flat.view(torch.int64) if flat.shape[1] % 8 == 0 else flat
