"""Masks of the last positions of several sequences, which may have different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_attention._block_mask import BlockMask, MaskMod, create_block_mask
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    Visibility,
    nothing_whole,
    visibility_of,
)
from torchyard_attention._mods._trace import MASK_INPUTS, reads, trace

_KEYS_PER_BLOCK = 128
_MOST_ROWS_PER_BLOCK = 128


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The last ``count`` positions of each of B sequences.

    Attributes:
        number: int64 [B]: what a function of indices gets as ``b``.
        past: int64 [B]: how many positions of the sequence come before.
        ends: past + count, where it is known; a mask of plain Python numbers needs no tensor.
        count: the positions of each.
    """

    number: Tensor
    past: Tensor
    ends: tuple[int, ...]
    count: int

    @property
    def longest(self) -> int:
        """The most positions that a sequence has."""
        return max(self.ends, default=0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _PlacedMask:
    """What a mask of positions shows to the queries at some places, of the keys that exist."""

    mask_mod: MaskMod | None
    causal: bool
    places: Places

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        past = self.places.past
        last = q_idx + past[b] if self.causal else past[b] + (self.places.count - 1)
        shown = kv_idx <= last
        if self.mask_mod is None:
            return shown
        allowed: Tensor = self.mask_mod(self.places.number[b], h, q_idx + past[b], kv_idx)
        return shown & allowed

    def visibility(self, rows: BlockRows) -> Visibility | None:
        past = self.places.past[:, None, None, None]
        first = past + (rows.first[:, None] if self.causal else self.places.count - 1)
        last = past + (rows.last[:, None] if self.causal else self.places.count - 1)
        start = torch.zeros_like(first)
        existing = Visibility(Intervals(start, last + 1), Intervals(start, first + 1))
        if self.mask_mod is None:
            return existing
        known = self._known(self.mask_mod, rows)
        return nothing_whole(existing) if known is None else existing & known

    def _known(self, mask_mod: MaskMod, rows: BlockRows) -> Visibility | None:
        """Return what the mask knows of itself, for each sequence: [B, H or 1, Qb, n]."""
        some, whole = [], []
        for number, end in enumerate(self.places.ends):
            past = end - self.places.count
            placed = BlockRows(rows.first + past, rows.last + past, rows.height, end, end)
            known = visibility_of(mask_mod, placed)
            if known is None:
                return None
            batch = int(self.places.number[number])
            some.append(_of_batch(known.some, batch, len(rows.first)))
            whole.append(_of_batch(known.whole, batch, len(rows.first)))
        return Visibility(_stacked(some), _stacked(whole))


def placed_mask(
    places: Places, mask_mod: MaskMod | None, *, causal: bool, heads: int, kv_length: int
) -> BlockMask:
    """Return which keys the queries at some places see, as blocks.

    Args:
        places: the positions of the queries.
        mask_mod: of ``(b, h, q_idx, kv_idx)``, indices being positions; None shows everything.
        causal: hide later positions too.
        heads: query heads; the mask distinguishes them only where mask_mod does.
        kv_length: Sk, at least the longest sequence.
    """
    mask = _PlacedMask(mask_mod, causal, places)
    if mask_mod is None:
        per_head = False
    else:
        text, _ = trace(mask_mod, "mask_mod", MASK_INPUTS, torch.float32, places.past.device)
        per_head = reads(text, "h")
    rows = 1
    while rows < places.count and rows < _MOST_ROWS_PER_BLOCK:
        rows *= 2
    return create_block_mask(
        mask,
        places.past.shape[0],
        heads if per_head else None,
        places.count,
        kv_length,
        device=places.past.device,
        BLOCK_SIZE=(rows, _KEYS_PER_BLOCK),
    )


def _of_batch(intervals: Intervals, batch: int, q_blocks: int) -> tuple[Tensor, Tensor]:
    """Return one batch's start and end: [1, H or 1, Qb, n]."""
    start, end = torch.broadcast_tensors(intervals.start, intervals.end)  # type: ignore[no-untyped-call]
    while start.ndim < 4:
        start, end = start[None], end[None]
    if start.shape[0] > 1:
        start, end = start[batch : batch + 1], end[batch : batch + 1]
    shape = (1, start.shape[1], q_blocks, start.shape[3])
    return start.expand(shape), end.expand(shape)


def _stacked(parts: Sequence[tuple[Tensor, Tensor]]) -> Intervals:
    width = max(start.shape[3] for start, _ in parts)

    def padded(tensor: Tensor) -> Tensor:
        # An interval from 0 to 0 is empty.
        return torch.nn.functional.pad(tensor, (0, width - tensor.shape[3]))

    return Intervals(
        torch.cat([padded(start) for start, _ in parts]),
        torch.cat([padded(end) for _, end in parts]),
    )
