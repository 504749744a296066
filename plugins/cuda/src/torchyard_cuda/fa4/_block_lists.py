"""A mask's lists of blocks, as FlashAttention-4's functions take them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks, listed_by_columns

__all__ = ["by_columns", "by_rows"]


def by_rows(mask: MaskBlocks, kv_length: int) -> dict[str, Any]:
    """Return the blocks of each row of blocks, which the forward follows.

    Args:
        mask: the lists.
        kv_length: Sk.
    """
    cut = kv_length % mask.block_size[1] != 0
    partial = _listed(mask.kv_num_blocks, mask.kv_indices, cut)
    full = _listed(mask.full_kv_num_blocks, mask.full_kv_indices, cut)
    return _arguments(mask, mask.kv_num_blocks, partial, mask.full_kv_num_blocks, full)


def by_columns(mask: MaskBlocks, kv_length: int) -> dict[str, Any]:
    """Return the rows of blocks of each column of blocks, which the backward follows."""
    counts, rows, full_counts, full_rows, _ = listed_by_columns(mask, kv_length)
    return _arguments(mask, counts, rows, full_counts, full_rows)


def _arguments(
    mask: MaskBlocks, counts: Tensor, indices: Tensor, full_counts: Tensor, full_indices: Tensor
) -> dict[str, Any]:
    return {
        "mask_block_cnt": counts,
        "mask_block_idx": indices,
        "full_block_cnt": full_counts,
        "full_block_idx": full_indices,
        "block_size": mask.block_size,
    }


def _listed(counts: Tensor, indices: Tensor, cut: bool) -> Tensor:
    """Return the indices of listed blocks.

    Args:
        counts, indices: int32 [B, H, Qb] and [B, H, Qb, any width].
        cut: whether keys end within a block. Those behind the end are kept out of the last block
            of a list alone, which then has to be the last of all.
    """
    width = indices.shape[3]
    if not width:
        return indices.new_zeros((*indices.shape[:3], 1))
    if not cut:
        return indices
    listed = torch.arange(width, device=indices.device) < counts[..., None]
    behind = torch.iinfo(indices.dtype).max
    return torch.where(listed, indices, behind).sort(-1).values
