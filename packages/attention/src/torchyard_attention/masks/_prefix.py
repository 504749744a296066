"""Masks that show the first keys to every query."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
)
from torchyard_attention._validation import integers, positions
from torchyard_attention.masks._band import causal, sliding_window
from torchyard_attention.masks._combination import or_masks


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _KeysBefore:
    length: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return kv_idx - self.length < 0

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(rows, torch.zeros_like, lambda q: torch.full_like(q, self.length))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _KeysBeforeOfBatch:
    lengths: Tensor

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        # One length is that of every batch.
        return kv_idx < (self.lengths[0] if self.lengths.shape[0] == 1 else self.lengths[b])

    def visibility(self, rows: BlockRows) -> Visibility:
        end = self.lengths.to(rows.first)[:, None, None, None]
        seen = Intervals(torch.zeros_like(end), end)
        return Visibility(seen, seen)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QueriesBefore:
    """Show everything to the first queries and nothing to the others."""

    length: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return q_idx - self.length < 0

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.of_queries(rows, rows.first < self.length, rows.last < self.length)


def padding(lengths: int | Tensor) -> StructuredMask:
    """Show every query the first ``lengths`` keys: one number, or integers [B] or [1]."""
    return keys_before("padding", "lengths", lengths)


def keys_before(of: str, name: str, lengths: int | Tensor) -> StructuredMask:
    if isinstance(lengths, Tensor):
        found = integers(of, name, lengths, "[B]")
        if not found.shape[0]:
            raise arguments.wrong_value(of, name, "a length for each batch", "none")
        return _KeysBeforeOfBatch(found)
    return _KeysBefore(positions(of, name, lengths))


def prefix_lm(lengths: int | Tensor) -> StructuredMask:
    """Show a query the prefix and what came before it.

    Args:
        lengths: of the prefix, as in :func:`padding`; queries of the prefix see all of it.
    """
    return or_masks(causal, keys_before("prefix_lm", "lengths", lengths))


def global_local(tokens: int, size: int) -> StructuredMask:
    """Show a query what is less than ``size`` positions away, and the first ``tokens`` keys.

    The first ``tokens`` queries see everything. Source: Longformer (arXiv 2004.05150) section 3.1.
    """
    tokens = positions("global_local", "tokens", tokens)
    size = positions("global_local", "size", size, least=1)
    return or_masks(sliding_window(size, ahead=size - 1), padding(tokens), QueriesBefore(tokens))
