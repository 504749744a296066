"""A block mask as an operand: torch's converted to ours, and checked against query and key."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention._block_mask._mask import BlockMask
from torchyard_attention._mask_blocks._source import stale
from torchyard_attention.contract import MaskBlocks, MaskSource
from torchyard_attention.fast_path import PathMask

__all__ = ["as_block_mask", "mask_operand", "path_mask"]

# What torch's own block mask holds once it was sliced: a function that only raises.
_SLICED_MASK_MOD: Final = "_sliced_mask_mod_error"
# The block size by which torch marks a mask that shows everything, whatever the lengths.
_OF_EMPTY_MASK: Final = (1 << 30, 1 << 30)


def as_block_mask(block_mask: Any) -> BlockMask | None:
    """Return torch's block mask as this package's; leave None and this package's as they are."""
    if block_mask is None or isinstance(block_mask, BlockMask):
        return block_mask
    wanted = ("kv_num_blocks", "kv_indices", "mask_mod", "BLOCK_SIZE", "seq_lengths")
    if not all(hasattr(block_mask, name) for name in wanted):
        raise TypeError(
            f"block_mask: expected a BlockMask of torchyard_attention or of torch, got "
            f"{type(block_mask).__name__}; make one with create_block_mask"
        )
    if block_mask.BLOCK_SIZE == _OF_EMPTY_MASK:
        return None
    if getattr(block_mask.mask_mod, "__name__", "") == _SLICED_MASK_MOD:
        raise ValueError(
            "block_mask: torch's BlockMask loses its mask_mod when it is sliced; set mask_mod on "
            "the slice, or slice a BlockMask of torchyard_attention, which keeps its bits"
        )
    return BlockMask.from_kv_blocks(
        block_mask.kv_num_blocks,
        block_mask.kv_indices,
        block_mask.full_kv_num_blocks,
        block_mask.full_kv_indices,
        BLOCK_SIZE=block_mask.BLOCK_SIZE,
        mask_mod=block_mask.mask_mod,
        seq_lengths=block_mask.seq_lengths,
    )


def mask_operand(mask: BlockMask | None, query: Tensor, key: Tensor) -> MaskBlocks | None:
    """Return a mask as a call holds it; raise ValueError unless it fits the query and the key."""
    if mask is None:
        return None
    if mask._outdated:
        mask._update()
    batch, heads = mask._kv_num_blocks.shape[:2]
    q_length, kv_length = mask._seq_lengths
    if (q_length, kv_length) != (query.shape[2], key.shape[2]):
        raise ValueError(
            f"block_mask: expected lengths {(query.shape[2], key.shape[2])}, those of query and "
            f"key, got {(q_length, kv_length)}; make a mask of that size with create_block_mask"
        )
    if batch not in (1, query.shape[0]) or heads not in (1, query.shape[1]):
        raise ValueError(
            f"block_mask: expected batch 1 or {query.shape[0]} and heads 1 or {query.shape[1]}, "
            f"got {batch} and {heads}"
        )
    for axis, (size, of_first) in enumerate(zip(query.shape[:2], mask._of_first, strict=True)):
        if of_first and size > 1:
            index, noun, argument = (("b", "batch", "B"), ("h", "head", "H"))[axis]
            raise ValueError(
                f"block_mask: its mask_mod reads {index}, and the mask is that of {noun} 0 alone, "
                f"while query has {size}; give {argument}={size} to create_block_mask, or lists of "
                f"{size} to BlockMask.from_kv_blocks"
            )
    if mask._kv_num_blocks.device != query.device:
        raise ValueError(
            f"block_mask: expected query's device {query.device}, got "
            f"{mask._kv_num_blocks.device}; move it with block_mask.to({str(query.device)!r})"
        )
    return _blocks(mask)


def _blocks(mask: BlockMask) -> MaskBlocks:
    """Return a mask as a call holds it, made once while nothing of it changes."""
    compiling = torch.compiler.is_compiling()
    if mask._as_blocks is not None and not compiling:
        return mask._as_blocks
    if mask._outdated:
        mask._update()
    source = None
    # A graph holds a program as a constant. So a mask from outside that captures no tensor has none
    # there: each other program would make another graph.
    if (mask._mask_captured or mask._of_graph or not compiling) and mask._mask_text:
        source = MaskSource(mask._mask_text, mask._mask_captured, mask._mask_versions)
    blocks = MaskBlocks(
        mask._block_size,
        mask._kv_num_blocks,
        mask._kv_indices,
        mask._full_kv_num_blocks,
        mask._full_kv_indices,
        mask._bits,
        mask._first_partial,
        causal=mask._causal,
        source=source,
    )
    if not compiling:
        mask._as_blocks = blocks
    return blocks


def path_mask(mask: BlockMask) -> PathMask | None:
    """Return a mask as a fast path takes it; None where its bits have to be computed again, or
    where it is for a query of one batch or one head, which only the slow path checks."""
    if mask._outdated:
        mask._update()
    if mask._mask_captured and stale(mask._mask_captured, mask._mask_versions):
        return None
    found = mask._path_mask
    if found is None:
        if any(mask._of_first):
            return None
        found = mask._path_mask = PathMask(_blocks(mask), mask._seq_lengths, mask._causal)
    return found
