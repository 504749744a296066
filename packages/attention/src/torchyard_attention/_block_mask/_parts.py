"""Parts of a block mask: some of its batches, heads, rows and columns of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask._lists import INDEX_DTYPES, dense_blocks
from torchyard_attention._mask_blocks._evaluation import first_slots, ordered, pack_bits

if TYPE_CHECKING:
    from torchyard_attention._block_mask._mask import BlockMask

__all__ = ["cut_bits", "parts_of", "taken"]


def taken(
    index: Any, shape: Sequence[int], mask: BlockMask
) -> tuple[tuple[slice | Tensor, ...], int, bool]:
    """Return what an index selects from lists [Bm, Hm, Qb].

    Returns:
        An index that keeps all dimensions, how many queries it takes, and whether its rows are the
        first ones.
    """
    picks = index if isinstance(index, tuple) else (index,)
    if len(picks) > 3:
        raise IndexError(
            f"BlockMask[...]: expected batch, head and row of blocks, got {len(picks)} indices"
        )
    padded = (*picks, slice(None), slice(None), slice(None))[:3]
    place = tuple(_as_slice(item, size) for item, size in zip(padded, shape, strict=True))
    rows, q_length = mask.BLOCK_SIZE[0], mask.seq_lengths[0]
    picked = place[2]
    if isinstance(picked, Tensor) and torch.compiler.is_compiling():
        if q_length % rows or picked.dtype == torch.bool:
            raise ValueError(
                f"BlockMask[...]: inside of torch.compile, a tensor takes rows of blocks by number "
                f"and only where the queries fill their blocks of {rows}, got {picked.dtype} and "
                f"{q_length} queries"
            )
        return place, picked.shape[0] * rows, False
    blocks = (
        list(range(shape[2]))[picked]
        if isinstance(picked, slice)
        else torch.arange(shape[2])[picked.cpu()].tolist()
    )
    heights = [min(rows, q_length - block * rows) for block in blocks]
    if any(height < rows for height in heights[:-1]):
        raise ValueError(
            f"BlockMask[...]: the last row of blocks holds fewer than {rows} queries and can "
            f"only be taken last, got rows {blocks}"
        )
    return place, sum(heights), blocks == list(range(len(blocks)))


def _as_slice(item: Any, size: int) -> slice | Tensor:
    """Return an index of one dimension that keeps the dimension."""
    of = "BlockMask[...]"
    if isinstance(item, Tensor):
        arguments.tensor(of, "index", item, dtypes=(*INDEX_DTYPES, torch.bool))
        if item.dtype is torch.bool and item.shape != (size,):
            raise arguments.wrong_value(
                of, "index", f"a bool for each of {size}", f"shape {list(item.shape)}"
            )
        if item.dtype is not torch.bool and not torch.compiler.is_compiling() and item.numel():
            least, most = (int(bound) for bound in item.aminmax())
            if least < -size or most >= size:
                raise IndexError(
                    f"{of}: index: expected {-size} to {size - 1}, got {least} to {most}"
                )
        return item.reshape(1) if item.ndim == 0 else item
    if isinstance(item, slice):
        return item
    item = arguments.integer(
        of, "index", item, remedy="slices and tensors of integers or bools are indices too"
    )
    if not -size <= item < size:
        raise IndexError(f"{of}: index: expected {-size} to {size - 1}, got {item}")
    return slice(item, item + 1 or None)


def parts_of(
    mask: BlockMask, q_blocks: Sequence[int], kv_blocks: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the six tensors of a mask of some rows and columns of blocks, bits of its own."""
    device = mask.kv_num_blocks.device
    rows = torch.tensor(list(q_blocks), dtype=torch.int64, device=device)
    columns = torch.tensor(list(kv_blocks), dtype=torch.int64, device=device)
    count = -(-mask.seq_lengths[1] // mask.BLOCK_SIZE[1])
    slots = _slots(mask, count)[:, :, rows][..., columns]
    partial = slots >= 0
    _, _, full_counts, full_indices, *_ = mask.block_tensors()
    full = dense_blocks(full_counts, full_indices, count)
    kv_num_blocks, kv_indices = ordered(partial)
    full_kv_num_blocks, full_kv_indices = ordered(full[:, :, rows][..., columns])
    bits = mask.bits[slots[partial]]
    first = first_slots(kv_num_blocks)
    return kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, bits, first


def _slots(mask: BlockMask, kv_blocks: int) -> Tensor:
    """Return the offset of each block in ``bits``, -1 for those that are not partial.

    int64 [Bm, Hm, Qb, Kb].
    """
    place = torch.arange(mask.kv_indices.shape[-1], device=mask.kv_indices.device)
    listed = place < mask.kv_num_blocks[..., None]
    targets = torch.where(listed, mask.kv_indices, kv_blocks).long()
    slots = mask.first_partial.new_full((*mask.kv_num_blocks.shape, kv_blocks + 1), -1)
    slots.scatter_(-1, targets, mask.first_partial[..., None] + place)
    return slots[..., :kv_blocks]


def cut_bits(
    bits: Tensor,
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Tensor:
    """Return the bits of partial blocks, in list order, without what is beyond the lengths.

    Blocks that are now hidden may be among them.
    """
    place = torch.arange(kv_indices.shape[-1], device=bits.device)
    where = (place < kv_num_blocks[..., None]).nonzero(as_tuple=True)
    rows, keys = block_size
    q = where[2][:, None] * rows + torch.arange(rows, device=bits.device)
    k = kv_indices[where][:, None] * keys + torch.arange(keys, device=bits.device)
    shown = pack_bits((k < lengths[1])[:, None, :])
    return bits & shown & ((q < lengths[0])[:, :, None].to(torch.uint8) * 255)
