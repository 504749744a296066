"""``decode`` and ``varlen``: few queries over many keys, pages of a cache, packed sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_triton._launch import Launch
from torchyard_triton.attention._launch import (
    MaskProgram,
    Tiles,
    checked_sizes,
    lowered_mask,
    lowered_score,
    mask_arguments,
    padded,
    program_arguments,
    row_tiles,
    tensor_arguments,
)

__all__ = ["DECODE_ROWS", "DecodePasses", "Packed", "decode", "decodes", "varlen"]

# Rows per key head up to which a call is decoding: no matrix instruction takes a smaller tile.
DECODE_ROWS: Final = 16
# Keys of one part: fixed, so that no size changes the order of a sequence's sums.
_PART: Final = 256
_MERGED_ROWS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Sequences one after another.

    Attributes:
        starts_q, starts_k: int32 or int64 [N + 1]: where each one's queries and keys begin, and
            the end.
        longest_q, longest_k: no sequence has more.
        causal: hide later keys; the ends of a sequence's queries and keys are aligned.
    """

    starts_q: Tensor
    starts_k: Tensor
    longest_q: int
    longest_k: int
    causal: bool = False


def decodes(call: AttentionCall) -> bool:
    """Return whether a call has so few rows per key head that heads are better put together."""
    return call.query.shape[2] * _group(call) <= DECODE_ROWS


def decode(
    call: AttentionCall,
    *,
    mask_mod: MaskProgram | None = None,
    sinks: Tensor | None = None,
    tiles: Tiles | None = None,
) -> AttentionResult:
    """Compute ``attention/1`` over parts of 256 keys in parallel, and merge them.

    Args:
        call: the call, of float32, float16 or bfloat16, without dropout; with pages or without.
        mask_mod, sinks: as of :func:`torchyard_triton.attention.forward`.
        tiles: None: the default. Rows beyond what the call has are not computed.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: the call is larger than kernels can index.
    """
    return DecodePasses(call, None, mask_mod, sinks, tiles or _TILES).run()


def varlen(
    call: AttentionCall,
    packed: Packed,
    *,
    mask_mod: MaskProgram | None = None,
    tiles: Tiles | None = None,
) -> AttentionResult:
    """Compute attention within each of several sequences that lie one after another.

    Args:
        call: of one batch, whose queries [1, Hq, Tq, D] and keys [1, Hkv, Tk, D] are those of all
            sequences, without mask, dropout and pages. A score_mod gets the number of the sequence
            and positions in it.
        packed: the sequences. What is after the last one is not written.
        mask_mod: hides pairs by the same indices.
        tiles: None: the default.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: the call is larger than kernels can index, or is none of packed sequences.
    """
    if call.query.shape[0] != 1 or call.mask is not None or call.pages is not None:
        raise ValueError(
            "varlen: call: expected one batch without mask and pages, got batch "
            f"{call.query.shape[0]}, mask: {call.mask is not None}, pages: {call.pages is not None}"
        )
    return DecodePasses(call, packed, mask_mod, None, tiles or Tiles()).run()


# Tiles that every architecture compiles: with 64 rows Triton 3.7 fails on tcgen05.
_TILES: Final = Tiles(rows=32, keys=32, warps=4, stages=2)


class DecodePasses:
    """Both launches. Arguments as of :func:`decode` and :func:`varlen`."""

    def __init__(
        self,
        call: AttentionCall,
        packed: Packed | None,
        mask_mod: MaskProgram | None,
        sinks: Tensor | None,
        tiles: Tiles,
    ) -> None:
        checked_sizes(call)
        self.call, self.packed, self.sinks = call, packed, sinks
        query, value, pages = call.query, call.value, call.pages
        self.batches, self.heads, self.q_length, _ = query.shape
        self.value_dim = value.shape[3]
        self.kv_length = value.shape[2]
        if pages is not None:
            self.kv_length = pages.table.shape[1] * value.shape[2]
        if packed is not None:
            self.kv_length = packed.longest_k
        # Lists of blocks that differ between heads are followed head by head.
        shared = call.mask is None or call.mask.kv_num_blocks.shape[1] == 1
        self.fold = _group(call) if shared else 1
        self.block = (0, 0) if call.mask is None else call.mask.block_size
        rows = (self.q_length if packed is None else packed.longest_q) * self.fold
        self.rows = rows
        block_rows = self.block[0] * self.fold
        keys = min(self.block[1] or self.kv_length, self.kv_length, _PART)
        self.tiles = tiles.within((min(block_rows or rows, rows), keys))
        self.count = row_tiles(rows, block_rows, self.tiles.rows)
        self.steps = max(1, _PART // self.tiles.keys)
        self.splits = max(1, -(-self._most_steps() // self.steps))
        outputs = (self.batches, self.heads, self.q_length)
        self.out = query.new_empty((*outputs, self.value_dim))
        self.lse = query.new_empty(outputs, dtype=torch.float32)
        self.max_scores = torch.empty_like(self.lse) if call.max_scores else None
        self.lses = self.lse.new_empty((self.splits, *outputs))
        self.maxima = torch.empty_like(self.lses) if call.max_scores else self.lses
        self.states = self.lse.new_empty((self.splits, *self.out.shape))
        score = None if call.score_mod is None else lowered_score(call.score_mod)
        mask = None if mask_mod is None else lowered_mask(mask_mod)
        self.score, self.captured = program_arguments(call.score_mod, score, query.device)
        self.mask, self.mask_captured = program_arguments(mask_mod, mask, query.device)

    def _most_steps(self) -> int:
        """Return how many tiles of keys a row can have, from sizes alone: lengths are not read."""
        mask = self.call.mask
        if mask is None:
            return -(-self.kv_length // self.tiles.keys)
        blocks = mask.kv_indices.shape[3] + mask.full_kv_indices.shape[3]
        return blocks * -(-min(self.kv_length, self.block[1]) // self.tiles.keys)

    def run(self) -> AttentionResult:
        self.launch().run()
        self.merge_launch().run()
        return AttentionResult(self.out, self.lse if self.call.lse else None, self.max_scores)

    def _spans(self) -> tuple[Any, ...]:
        pages, packed = self.call.pages, self.packed
        if packed is not None:
            return packed.starts_q, packed.starts_k, 1
        if pages is not None:
            return pages.table, pages.lengths, pages.table.shape[1]
        return self.lse, self.lse, 1

    def launch(self) -> Launch:
        """Return the launch that computes each part."""
        from torchyard_triton.device.attention.decode import attention_decode

        call, packed = self.call, self.packed
        sequences = self.batches if packed is None else packed.starts_q.shape[0] - 1
        arguments = (
            *(tensor_arguments(tensor) for tensor in (call.query, call.key, call.value)),
            *(self.states, self.lses, self.maxima, mask_arguments(call.mask, self.lse)),
            *(self._spans(), self.captured, self.mask_captured, call.scale),
            *(self.batches, self.heads, _group(call), self.q_length, self.kv_length),
            *(self.count, self.splits),
        )
        constants = {
            "SCORE": self.score,
            "MASK": self.mask,
            "LISTS": call.mask is not None,
            "CAUSAL": packed is not None and packed.causal,
            "PAGE": 0 if call.pages is None else call.key.shape[2],
            "PACKED": packed is not None,
            "FOLD": self.fold,
            "MAXIMA": call.max_scores,
            "STEPS": self.steps,
            "BLOCK": self.block[0],
            "KEY_BLOCK": self.block[1],
            "SIZE": call.query.shape[3],
            "PADDED": padded(call.query.shape[3]),
            "VALUE_SIZE": self.value_dim,
            "VALUE_PADDED": padded(self.value_dim),
            **self.tiles.constants,
        }
        grid = (sequences * (self.heads // self.fold) * self.count * self.splits,)
        return Launch(attention_decode, grid, arguments, constants)

    def merge_launch(self) -> Launch:
        """Return the launch that puts the parts together."""
        from torchyard_triton.device.attention.merge import attention_merge

        count = self.lse.numel()
        arguments = (
            *(self.states, self.lses, self.maxima, self.out, self.lse),
            self.lse if self.max_scores is None else self.max_scores,
            self.lse if self.sinks is None else self.sinks,
            *(count, self.heads, self.q_length, self.splits),
        )
        constants = {
            "SINKS": self.sinks is not None,
            "MAXIMA": self.max_scores is not None,
            "VALUE_SIZE": self.value_dim,
            "VALUE_PADDED": padded(self.value_dim),
            "ROWS": _MERGED_ROWS,
        }
        return Launch(attention_merge, (-(-count // _MERGED_ROWS),), arguments, constants)


def _group(call: AttentionCall) -> int:
    return call.query.shape[1] // max(1, call.key.shape[1])
