"""A mask's lists by columns of blocks, which the gradients of keys and values follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from torchyard_attention.contract._call import MaskBlocks

__all__ = ["listed_by_columns"]


def listed_by_columns(
    mask: MaskBlocks, kv_length: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return which rows of blocks each column of blocks is visible to.

    Rows ascend, so that sums over them have one order; entries beyond a count are undefined.

    Args:
        mask: the lists by rows.
        kv_length: Sk; with Kb = ceil(Sk / BK), at least 1.

    Returns:
        Counts int32 [Bm, Hm, Kb] and rows int32 [Bm, Hm, Kb, Qb] of partially visible blocks, the
        same of fully visible ones, and int64 [Bm, Hm, Kb, Qb], where in ``bits`` each partially
        visible block is.
    """
    import torch

    columns = max(1, -(-kv_length // mask.block_size[1]))
    width = mask.kv_indices.shape[3]
    slots = mask.first_partial[..., None] + torch.arange(width, device=mask.bits.device)
    partial = _dense(mask.kv_num_blocks, mask.kv_indices, slots, columns)
    none = mask.full_kv_indices.long() * 0
    full = _dense(mask.full_kv_num_blocks, mask.full_kv_indices, none, columns)
    counts, rows = _columns(partial)
    ordered = partial.mT.gather(-1, rows.long()).contiguous()
    return (counts, rows, *_columns(full), ordered)


def _dense(counts: Tensor, indices: Tensor, values: Tensor, columns: int) -> Tensor:
    """Return int64 [Bm, Hm, Qb, Kb]: the value of each listed block, -1 elsewhere."""
    import torch

    place = torch.arange(indices.shape[-1], device=indices.device)
    listed = place < counts[..., None]
    # A column more takes what is behind the lists' ends.
    dense = values.new_full((*counts.shape, columns + 1), -1)
    to = torch.where(listed, indices.long(), columns)
    return dense.scatter_(-1, to, torch.where(listed, values, -1))[..., :columns]


def _columns(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Return the counts int32 [Bm, Hm, Kb] of listed rows, and the rows, listed ones first."""
    import torch

    listed = dense.mT >= 0
    # Not of int8, which not every device sorts.
    rows = listed.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    return listed.sum(dim=-1, dtype=torch.int32), rows.to(torch.int32).contiguous()
