"""A mask's lists by columns of blocks, which the gradients of keys and values follow."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks

__all__ = ["transposed_arguments"]


def transposed_arguments(mask: MaskBlocks | None, kv_length: int, like: Tensor) -> tuple[Any, ...]:
    """Return a mask's transposed lists as kernels take them; without a mask what is never read.

    They are: partial counts, partial rows, full counts, full rows, slots of bits, batches, heads,
    columns of blocks, width. Rows ascend, so that sums have one order.
    """
    if mask is None:
        return (like, like, like, like, like, 1, 1, 1, 1)
    columns = max(1, -(-kv_length // mask.block_size[1]))
    batches, heads, rows = mask.kv_num_blocks.shape
    slots = mask.first_partial[..., None] + torch.arange(
        mask.kv_indices.shape[3], device=mask.bits.device
    )
    partial = _dense(mask.kv_num_blocks, mask.kv_indices, slots, columns)
    full = _dense(
        mask.full_kv_num_blocks, mask.full_kv_indices, mask.full_kv_indices.long() * 0, columns
    )
    partial_counts, partial_rows = _columns(partial)
    full_counts, full_rows = _columns(full)
    ordered = partial.mT.gather(-1, partial_rows.long()).contiguous()
    return (
        *(partial_counts, partial_rows, full_counts, full_rows, ordered),
        *(batches, heads, columns, max(1, rows)),
    )


def _dense(counts: Tensor, indices: Tensor, values: Tensor, columns: int) -> Tensor:
    """Return int64 [Bm, Hm, Qb, Kb]: the value of each listed block, -1 elsewhere."""
    place = torch.arange(indices.shape[-1], device=indices.device)
    listed = place < counts[..., None]
    # A column more takes what is behind the lists' ends.
    dense = values.new_full((*counts.shape, columns + 1), -1)
    to = torch.where(listed, indices.long(), columns)
    return dense.scatter_(-1, to, torch.where(listed, values, -1))[..., :columns]


def _columns(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Return the counts int32 [Bm, Hm, Kb] of listed rows, and the rows, listed ones first."""
    listed = dense.mT >= 0
    rows = listed.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return listed.sum(dim=-1, dtype=torch.int32), rows.to(torch.int32).contiguous()
