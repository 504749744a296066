"""Checks of what a user hands to ``flex_attention``."""

from __future__ import annotations

from typing import Any, Final

from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask import BlockMask

# What torch's own block mask holds once it was sliced: a function that only raises.
_SLICED_MASK_MOD: Final = "_sliced_mask_mod_error"
# The block size by which torch tells a mask that shows everything, whatever the lengths.
_OF_EMPTY_MASK: Final = (1 << 30, 1 << 30)


def check_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_mask: BlockMask | None,
    enable_gqa: bool,
) -> None:
    """Raise ValueError or TypeError that names the argument that does not fit."""
    tensors = (("query", query), ("key", key), ("value", value))
    for name, tensor in tensors:
        if tensor.dtype != query.dtype or tensor.device != query.device:
            raise TypeError(
                f"{name}: expected query's dtype and device, {query.dtype} on {query.device}, got "
                f"{tensor.dtype} on {tensor.device}"
            )
    _check_shapes(query, key, value, enable_gqa)
    if block_mask is not None:
        _check_mask(query, key, block_mask)


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


def parse_dropout(dropout_p: Any) -> float:
    """Return the probability as a float; raise TypeError or ValueError where it is none."""
    return arguments.number("flex_attention", "dropout_p", dropout_p, least=0, most=1)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    batch, q_heads, _, head_dim = query.shape
    if key.shape[3] != head_dim:
        raise ValueError(f"key: expected head size {head_dim}, as query, got {key.shape[3]}")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value: expected key's batch, heads and length {list(key.shape[:3])}, got "
            f"{list(value.shape[:3])}"
        )
    if key.shape[0] not in (1, batch):
        raise ValueError(
            f"key: expected batch {batch}, as query, or 1 for all of them, got {key.shape[0]}"
        )
    kv_heads = key.shape[1]
    if q_heads != kv_heads and not enable_gqa:
        raise ValueError(
            f"key: expected {q_heads} heads, as query, got {kv_heads}; pass enable_gqa=True for "
            f"grouped queries"
        )
    if kv_heads == 0 or q_heads % kv_heads:
        raise ValueError(
            f"query: expected a multiple of key's {kv_heads} heads, got {q_heads} heads"
        )
    if head_dim == 0:
        raise ValueError("query: expected a head size of at least 1, got 0")


def _check_mask(query: Tensor, key: Tensor, mask: BlockMask) -> None:
    batch, heads, q_length, kv_length = mask.shape
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
    for axis, (size, of_first) in enumerate(zip(query.shape[:2], mask.of_first, strict=True)):
        if of_first and size > 1:
            index, noun, argument = (("b", "batch", "B"), ("h", "head", "H"))[axis]
            raise ValueError(
                f"block_mask: its mask_mod reads {index}, and the mask is that of {noun} 0 alone, "
                f"while query has {size}; give {argument}={size} to create_block_mask, or lists of "
                f"{size} to BlockMask.from_kv_blocks"
            )
    if mask.kv_num_blocks.device != query.device:
        raise ValueError(
            f"block_mask: expected query's device {query.device}, got "
            f"{mask.kv_num_blocks.device}; move it with block_mask.to({str(query.device)!r})"
        )
