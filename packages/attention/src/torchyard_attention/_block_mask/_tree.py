"""A block mask as a tree of tensors, for torch.export and functions that map over trees."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_attention._block_mask._mask import BlockMask
from torchyard_attention._block_mask._recorded import RecordedMask
from torchyard_attention._torch_compat import register_tree


def _flatten(mask: BlockMask) -> tuple[list[Tensor], Any]:
    if not torch.compiler.is_compiling():
        mask._refresh()
    context = (
        mask.seq_lengths,
        mask.BLOCK_SIZE,
        mask.mask_text,
        mask.mask_versions,
        mask.causal,
        mask.of_first,
        mask._q_lists,
        mask._full_lists,
    )
    return mask._tensors(), context


def _unflatten(leaves: Any, context: Any) -> BlockMask:
    seq_lengths, block_size, text, versions, causal, of_first, q_lists, full_lists = context
    kv_num, kv_indices, full_num, full_indices, bits, first, *rest = leaves
    captured = tuple(rest)
    return BlockMask(
        seq_lengths,
        kv_num,
        kv_indices,
        full_num,
        full_indices,
        bits,
        first,
        block_size,
        RecordedMask(text, captured) if text else None,
        text,
        captured,
        versions,
        causal,
        of_first=of_first,
        q_lists=q_lists,
        full_lists=full_lists,
    )


def register() -> None:
    """Register block masks with torch's trees."""
    register_tree(BlockMask, _flatten, _unflatten, "torchyard_attention.BlockMask")
