"""The training mask of block diffusion: a noised copy of a sequence, then the clean one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._intervals import BlockRows, StructuredMask, Visibility
from torchyard_attention._validation import positions
from torchyard_attention.masks._combination import and_masks, or_masks
from torchyard_attention.masks._prefix import QueriesBefore


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _SameBlock:
    """The noised keys of the query's own block."""

    length: int
    block: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return (kv_idx - self.length < 0) & (q_idx // self.block == kv_idx // self.block)

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(
            rows,
            lambda q: q // self.block * self.block,
            lambda q: (q // self.block * self.block + self.block).clamp(max=self.length),
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _CleanBefore:
    """The clean keys of blocks before a noised query's own."""

    length: int
    block: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        key = kv_idx - self.length
        return (key >= 0) & (key < q_idx // self.block * self.block)

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(
            rows,
            lambda q: torch.full_like(q, self.length),
            lambda q: self.length + q // self.block * self.block,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _CleanUpTo:
    """The clean keys up to and with a clean query's own block; nothing for a noised query."""

    length: int
    block: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        query, key = q_idx - self.length, kv_idx - self.length
        return (query >= 0) & (key >= 0) & (query // self.block >= key // self.block)

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(rows, lambda q: torch.full_like(q, self.length), self._end)

    def _end(self, query: Tensor) -> Tensor:
        end = (query - self.length) // self.block * self.block + self.block + self.length
        return torch.where(query >= self.length, end, 0)


def block_diffusion(length: int, block: int) -> StructuredMask:
    """Show what block diffusion trains with: positions 0 to length - 1 noised, then all clean.

    A noised query sees its own block of the noised copy and the clean blocks before it; a clean
    query sees the clean blocks up to its own. Source: Block Diffusion (arXiv 2503.09573).

    Args:
        length: of one copy; the mask is for 2 * length queries and keys.
        block: positions that are denoised together; it divides ``length``.
    """
    length = positions("block_diffusion", "length", length, least=1)
    block = positions("block_diffusion", "block", block, least=1)
    if length % block:
        raise ValueError(
            f"block_diffusion: block: expected a divisor of length {length}, got {block}"
        )
    noised = or_masks(_SameBlock(length, block), _CleanBefore(length, block))
    return or_masks(and_masks(QueriesBefore(length), noised), _CleanUpTo(length, block))
