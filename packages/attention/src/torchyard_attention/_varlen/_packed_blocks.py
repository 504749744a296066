"""Mask blocks of packed sequences, straight from where the sequences begin.

Each query sees one interval of the packed keys: those of its own sequence, cut at the diagonal
where the mask is causal. Blocks, counts and bits follow from the intervals alone, for the blocks
that they touch.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention._ops._operators import OPERATORS, isolated
from torchyard_attention.contract import MaskBlocks

# Elements of one step's temporaries.
_STEP: Final = 1 << 20

_SCHEMA: Final = (
    "packed_blocks(Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt q_length, SymInt kv_length, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k, int rows, int keys, bool causal, "
    "int? window=None) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def packed_blocks(
    starts_q: Tensor,
    starts_k: Tensor,
    lengths: tuple[int, int],
    longest: tuple[int, int],
    block_size: tuple[int, int],
    *,
    causal: bool,
    window: int | None = None,
) -> MaskBlocks:
    """Return the mask under which packed sequences do not see each other.

    Args:
        starts_q, starts_k: int32 or int64 [N + 1]: where each sequence begins, and the end.
        lengths: packed queries and keys.
        longest: the most queries and keys that a sequence may have.
        block_size: (BQ, BK).
        causal: hide later keys; the last query of a sequence sees all of the sequence's keys.
        window: how many keys a query sees at most, itself and those before it, where the mask is
            causal; None: all.

    Returns:
        blocks for one batch and one head. Places of the lists beyond the counts are not written.

    Raises:
        ValueError: starts_q or starts_k do not run from 0 to the length, or exceed ``longest``.
    """
    tensors = OPERATORS["packed_blocks"](
        starts_q, starts_k, *lengths, *longest, *block_size, causal, window
    )
    return MaskBlocks(block_size, *tensors)


def _packed_blocks(
    starts_q: Tensor,
    starts_k: Tensor,
    q_length: int,
    kv_length: int,
    max_q: int,
    max_k: int,
    rows: int,
    keys: int,
    causal: bool,
    window: int | None = None,
) -> tuple[Tensor, ...]:
    _check_starts("q", starts_q, q_length, max_q)
    _check_starts("k", starts_k, kv_length, max_k)
    q_blocks, kv_blocks = -(-q_length // rows), -(-kv_length // keys)
    first, end = _intervals(starts_q.long(), starts_k.long(), q_length, causal, window)
    padding = q_blocks * rows - q_length
    first, end = (
        torch.nn.functional.pad(x, (0, padding)).view(q_blocks, rows) for x in (first, end)
    )
    row, column = _touched(first, end, keys)
    step = max(1, _STEP // (rows * max(1, keys // 8)))
    kinds, bits = [], []
    for start in range(0, len(row), step):
        part = slice(start, start + step)
        low = first[row[part]] - column[part, None] * keys
        high = end[row[part]] - column[part, None] * keys
        count = (high.clamp(0, keys) - low.clamp(0, keys)).clamp(min=0).sum(dim=1)
        # As in torch, a block that the end of a sequence cuts is never full.
        kinds.append((count > 0).to(torch.int8) + (count == rows * keys))
        partial = kinds[-1] == 1
        bits.append(_bits(low[partial], high[partial], keys))
    none = row.new_empty(0, dtype=torch.int8)
    kind = torch.cat([none, *kinds])
    partial_lists = _lists(row[kind == 1], column[kind == 1], q_blocks, kv_blocks)
    full_lists = _lists(row[kind == 2], column[kind == 2], q_blocks, kv_blocks)
    nothing = torch.empty((0, rows, -(-keys // 8)), dtype=torch.uint8, device=row.device)
    counts = partial_lists[0].long()
    return (
        *partial_lists,
        *full_lists,
        torch.cat([nothing, *bits]),
        (counts.flatten().cumsum(0) - counts.flatten()).view(counts.shape),
    )


def _check_starts(which: str, starts: Tensor, length: int, longest: int) -> None:
    name = f"cu_seqlens_{which}"
    if int(starts[0]) != 0 or int(starts[-1]) != length:
        raise ValueError(
            f"{name}: expected numbers from 0 to {length}, the packed length, got "
            f"{int(starts[0])} to {int(starts[-1])}"
        )
    sizes = starts.diff()
    if sizes.numel() == 0:
        return
    if int(sizes.min()) < 0:
        raise ValueError(
            f"{name}: expected numbers that do not fall, got "
            f"{starts[int(sizes.argmin()) :][:2].tolist()}"
        )
    if int(sizes.max()) > longest:
        raise ValueError(
            f"max_seqlen_{which}: expected at least {int(sizes.max())}, the longest sequence of "
            f"{name}, got {longest}"
        )


def _intervals(
    starts_q: Tensor, starts_k: Tensor, q_length: int, causal: bool, window: int | None
) -> tuple[Tensor, Tensor]:
    """Return the first key that each query sees, and the one after its last."""
    sizes = starts_q.diff()
    sequence = torch.repeat_interleave(sizes, output_size=q_length)
    first, end = starts_k[sequence], starts_k[sequence + 1]
    if causal:
        # Counted from the sequences' ends, which are aligned.
        left = starts_q[sequence + 1] - torch.arange(q_length, device=sequence.device) - 1
        end = torch.maximum(end - left, first)
        if window is not None:
            first = torch.maximum(end - window, first)
    return first, end


def _touched(first: Tensor, end: Tensor, keys: int) -> tuple[Tensor, Tensor]:
    """Return (row of blocks, block) of all blocks between a row's least and greatest key."""
    seen = end > first
    past = torch.iinfo(first.dtype).max
    low = torch.where(seen, first, past).amin(dim=1) // keys
    high = -(-torch.where(seen, end, 0).amax(dim=1) // keys)
    counts = (high - low).clamp(min=0)
    row = torch.repeat_interleave(counts)
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return row, low[row] + place


def _bits(low: Tensor, high: Tensor, keys: int) -> Tensor:
    """Return uint8 [N, BQ, ceil(BK / 8)] with the bits from ``low`` up to ``high`` of each row."""
    eights = torch.arange(0, keys, 8, device=low.device)
    low, high = low.clamp(0, keys), high.clamp(0, keys)
    below = (low[..., None] - eights).clamp(0, 8)
    above = (high[..., None] - eights).clamp(0, 8)
    ones = (1 << above) - 1
    return (ones & ~((1 << below) - 1)).to(torch.uint8)


def _lists(row: Tensor, column: Tensor, q_blocks: int, kv_blocks: int) -> tuple[Tensor, Tensor]:
    counts = torch.bincount(row, minlength=q_blocks)
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    # Memory that is never written costs nothing: only the places that count are.
    indices = torch.empty((1, 1, q_blocks, kv_blocks), dtype=torch.int32, device=row.device)
    indices[0, 0, row, place] = column.to(torch.int32)
    return counts.to(torch.int32).view(1, 1, q_blocks), indices


def _packed_blocks_fake(
    starts_q: Tensor,
    starts_k: Tensor,
    q_length: int,
    kv_length: int,
    max_q: int,
    max_k: int,
    rows: int,
    keys: int,
    causal: bool,
    window: int | None = None,
) -> tuple[Tensor, ...]:
    counts = (1, 1, -(-q_length // rows))
    lists = (*counts, -(-kv_length // keys))
    partial = torch.library.get_ctx().new_dynamic_size()
    return (
        starts_q.new_empty(counts, dtype=torch.int32),
        starts_q.new_empty(lists, dtype=torch.int32),
        starts_q.new_empty(counts, dtype=torch.int32),
        starts_q.new_empty(lists, dtype=torch.int32),
        starts_q.new_empty((partial, rows, -(-keys // 8)), dtype=torch.uint8),
        starts_q.new_empty(counts, dtype=torch.int64),
    )


OPERATORS.define(_SCHEMA, isolated(_packed_blocks), _packed_blocks_fake)
