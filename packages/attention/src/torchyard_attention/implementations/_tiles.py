"""Iteration over the visible parts of the score matrix, tile by tile.

A tile is a run of query rows with the keys that any of them sees, for the batches and heads that
share a mask. Its keys are cut into pieces, so that a piece's scores fit the cache, and the batches
and heads into chunks. Hidden blocks are never visited, and adjacent visible blocks become one run
of keys, so that a tile costs few, large matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, MaskBlocks

# Measured on an AMD EPYC of family 26 (Zen 5, 1 MiB of L2 per core), 2 cores, float32, D = 64:
# fewer elements cost Python's time per step, more leave the cache.
ROWS: Final = 128
ELEMENTS: Final = 1 << 19
MIN_KEYS: Final = 256
MAX_KEYS: Final = 2048


@dataclass(frozen=True, slots=True)
class Chunk:
    """Batches [b0, b1) and key heads [h0, h1), with query heads [g0, g1) of each key head's group.

    Either all key heads of its group of heads are taken, or a single batch: the chunk is one run of
    a flattened [B * Hkv] dimension.
    """

    batches: slice
    heads: slice
    group: slice


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Keys that a tile looks at together.

    Attributes:
        runs: [start, stop) of keys, ascending.
        keys: int64 [n]: their numbers.
        bias: float [rows, n], 0 where visible and -inf where hidden; None where all is visible.
    """

    runs: tuple[tuple[int, int], ...]
    keys: Tensor
    bias: Tensor | None

    def take(self, tensor: Tensor) -> Tensor:
        """Return the piece's keys of [N, Sk, X]: a view where they are one run."""
        parts = [tensor[:, start:stop] for start, stop in self.runs]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def add_to(self, tensor: Tensor, update: Tensor) -> None:
        """Add [N, n, X] to the piece's keys of [N, Sk, X]."""
        offset = 0
        for start, stop in self.runs:
            tensor[:, start:stop] += update[:, offset : offset + stop - start]
            offset += stop - start


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """Query rows [q0, q1), the pieces of keys that they see, and the chunks to do one by one."""

    rows: slice
    pieces: tuple[Piece, ...]
    chunks: tuple[Chunk, ...]


def tiles(call: AttentionCall, dtype: torch.dtype) -> Iterator[Tile]:
    """Yield tiles that cover every row of every batch and head once.

    Args:
        call: the call whose scores are visited; a row that sees nothing is in a tile with fewer
            or no pieces.
        dtype: of the pieces' biases.
    """
    batch, q_heads, q_length, _ = call.query.shape
    kv_heads, kv_length = call.key.shape[1:3]
    if batch == 0 or q_heads == 0 or q_length == 0:
        return
    group = q_heads // kv_heads
    if call.mask is None:
        whole = Chunk(slice(0, batch), slice(0, kv_heads), slice(0, group))
        keys = torch.arange(kv_length, device=call.query.device)
        for rows in _cut(0, q_length, ROWS):
            pieces = tuple(
                Piece(((start, stop),), keys[start:stop], None)
                for start, stop in _cut(0, kv_length, _keys_per_piece(group))
            )
            yield _tile(whole, rows, pieces)
        return
    lists = _Lists(call.mask, q_length, kv_length, dtype)
    shared_batch, shared_head = lists.batch == 1, lists.heads == 1
    for b in range(lists.batch):
        batches = slice(0, batch) if shared_batch else slice(b, b + 1)
        for h in range(lists.heads):
            heads = slice(0, kv_heads) if shared_head else slice(h // group, h // group + 1)
            members = slice(0, group) if shared_head else slice(h % group, h % group + 1)
            whole = Chunk(batches, heads, members)
            limit = _keys_per_piece(members.stop - members.start)
            for rows, pieces in lists.rows(b, h, limit):
                yield _tile(whole, rows, pieces)


def _keys_per_piece(group: int) -> int:
    return min(MAX_KEYS, max(MIN_KEYS, ELEMENTS // (ROWS * group)))


def _tile(whole: Chunk, rows: tuple[int, int], pieces: tuple[Piece, ...]) -> Tile:
    keys = max((piece.keys.numel() for piece in pieces), default=1)
    group = whole.group.stop - whole.group.start
    fitting = max(1, ELEMENTS // max(1, keys * group * (rows[1] - rows[0])))
    heads = whole.heads.stop - whole.heads.start
    chunks = tuple(
        Chunk(slice(*batches), slice(*some), whole.group)
        for batches in _cut(whole.batches.start, whole.batches.stop, max(1, fitting // heads))
        for some in _cut(whole.heads.start, whole.heads.stop, min(heads, fitting))
    )
    return Tile(slice(*rows), pieces, chunks)


class _Lists:
    """A mask's lists, read once into Python."""

    def __init__(self, mask: MaskBlocks, q_length: int, kv_length: int, dtype: torch.dtype) -> None:
        self.batch, self.heads, self.q_blocks, _ = mask.kv_indices.shape
        self._block = mask.block_size
        self._q_length, self._kv_length = q_length, kv_length
        self._partial = (mask.kv_num_blocks.tolist(), mask.kv_indices.tolist())
        self._full = (mask.full_kv_num_blocks.tolist(), mask.full_kv_indices.tolist())
        self._first = mask.first_partial.tolist()
        # Two more slots stand for every block that is hidden or visible whole.
        self._hidden, self._whole = len(mask.bits), len(mask.bits) + 1
        ends = mask.bits.new_tensor([0, 255]).view(2, 1, 1).expand(2, *mask.bits.shape[1:])
        self._bits = torch.cat([mask.bits, ends])
        device = mask.bits.device
        self._keys = torch.arange(kv_length, device=device)
        # One row per value of a byte: what its eight bits add to the scores.
        places = torch.arange(8, device=device)
        seen = torch.arange(256, device=device).unsqueeze(1).bitwise_right_shift(places) & 1
        zero = torch.zeros((), dtype=dtype, device=device)
        self._bias_of_byte = torch.where(seen.bool(), zero, -torch.inf)

    def rows(
        self, b: int, h: int, limit: int
    ) -> Iterator[tuple[tuple[int, int], tuple[Piece, ...]]]:
        """Yield [start, stop) of query rows with their pieces of at most ``limit`` keys."""
        height = self._block[0]
        for first, last in _cut(0, self.q_blocks, ROWS // height):
            states = [self._row_of_blocks(b, h, block) for block in range(first, last)]
            columns = sorted(set().union(*states))
            start, stop = first * height, min(last * height, self._q_length)
            for top, bottom in _cut(start, stop, ROWS):
                inside = slice(top - start, bottom - start)
                yield (
                    (top, bottom),
                    tuple(
                        self._piece(states, part, inside) for part in self._parts(columns, limit)
                    ),
                )

    def _row_of_blocks(self, b: int, h: int, block: int) -> dict[int, int]:
        """Return the slot of each visible block of a row of blocks."""
        counts, indices = self._partial
        first = self._first[b][h][block]
        listed = indices[b][h][block][: counts[b][h][block]]
        states = {column: first + place for place, column in enumerate(listed)}
        counts, indices = self._full
        whole = indices[b][h][block][: counts[b][h][block]]
        states.update(dict.fromkeys(whole, self._whole))
        return states

    def _parts(self, columns: list[int], limit: int) -> Iterator[tuple[list[int], int, int]]:
        """Yield (columns of blocks, first key of the first, last key of the last), cut to limit.

        A column that is wider than the limit comes alone, in several parts.
        """
        width = self._block[1]
        if width > limit:
            # Cut at whole bytes of the bits.
            for column in columns:
                stop = min((column + 1) * width, self._kv_length)
                for start, end in _cut(column * width, stop, limit // 8 * 8):
                    yield [column], start, end
            return
        for first, last in _cut(0, len(columns), limit // width):
            part = columns[first:last]
            yield part, part[0] * width, min((part[-1] + 1) * width, self._kv_length)

    def _piece(
        self, states: list[dict[int, int]], part: tuple[list[int], int, int], inside: slice
    ) -> Piece:
        columns, start, stop = part
        width = self._block[1]
        runs: list[tuple[int, int]] = []
        for column in columns:
            left, right = max(start, column * width), min(stop, (column + 1) * width)
            if runs and runs[-1][1] == left:
                runs[-1] = (runs[-1][0], right)
            else:
                runs.append((left, right))
        keys = [self._keys[left:right] for left, right in runs]
        slots = [[row.get(column, self._hidden) for column in columns] for row in states]
        bias = None
        if any(slot != self._whole for row in slots for slot in row):
            skipped = start - columns[0] * width
            count = sum(right - left for left, right in runs)
            bias = self._bias(slots, inside, slice(skipped, skipped + count))
        return Piece(tuple(runs), keys[0] if len(keys) == 1 else torch.cat(keys), bias)

    def _bias(self, slots: list[list[int]], rows: slice, keys: slice) -> Tensor:
        """Return 0 and -inf for the given rows and keys of a rectangle of blocks."""
        width = self._block[1]
        first, last = 0, self._bits.shape[2]
        taken = slice(None)
        # A block may be far larger than what is asked for of it.
        if len(slots[0]) == 1:
            first, last = keys.start // 8, -(-keys.stop // 8)
            keys = slice(keys.start - 8 * first, keys.stop - 8 * first)
            width = 8 * (last - first)
        if len(slots) == 1:
            taken, rows = rows, slice(None)
        slot = torch.tensor(slots, device=self._bits.device)
        bits = self._bits[slot, taken, first:last]
        values = self._bias_of_byte[bits.int()].flatten(-2)[..., :width]
        return values.transpose(1, 2).flatten(2).flatten(0, 1)[rows, keys].contiguous()


def _cut(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    step = max(1, size)
    for first in range(start, stop, step):
        yield first, min(first + step, stop)
