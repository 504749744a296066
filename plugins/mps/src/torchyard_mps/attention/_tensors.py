"""Tensors and sizes as the kernels of attention take them."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks
from torchyard_attention.contract import listed_by_columns as by_columns
from torchyard_mps._launch import or_one
from torchyard_mps.lowering import type_of_dtype

__all__ = [
    "ROWS",
    "THREADS",
    "constants",
    "listed_by_columns",
    "listed_by_rows",
    "no_lists",
    "row_tiles",
    "type_definition",
]

# Rows of a tile, of which each simdgroup of 32 threads computes 8.
ROWS: Final = 32
THREADS: Final = 128


def type_definition(name: str, dtype: torch.dtype) -> str:
    """Return the line of Metal that names the type of a dtype."""
    return f"typedef {type_of_dtype(dtype)} {name};"


def row_tiles(length: int, block: int, rows: int = ROWS) -> int:
    """Return how many tiles of so many rows there are; tiles do not cross blocks."""
    if not block:
        return -(-length // rows)
    return -(-length // block) * -(-min(block, length) // rows)


def constants(
    query: Tensor, value: Tensor, mask: MaskBlocks | None, threads: int = THREADS
) -> dict[str, object]:
    """Return what kernels are compiled for, but for programs."""
    block, key_block = (0, 0) if mask is None else mask.block_size
    return {
        "SIZE": query.shape[3],
        "VALUE_SIZE": value.shape[3],
        "BLOCK": block,
        "KEY_BLOCK": key_block,
        "LISTS": str(mask is not None).lower(),
        "THREADS": threads,
    }


def listed_by_rows(
    mask: MaskBlocks | None, device: torch.device
) -> tuple[tuple[Tensor, ...], list[int]]:
    """Return a mask's lists by rows of blocks, and their sizes; without one what is never read.

    They are: partial counts, partial blocks, full counts, full blocks, bits, slots of the partial
    blocks' bits. Sizes: batches, heads, rows of blocks, width of partial and of full blocks.
    """
    if mask is None:
        return no_lists(device)
    width = mask.kv_indices.shape[3]
    slots = mask.first_partial[..., None] + torch.arange(width, device=device)
    lists = (
        *(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices),
        *(mask.bits, slots),
    )
    sizes = [*mask.kv_num_blocks.shape, width, mask.full_kv_indices.shape[3]]
    return tuple(or_one(tensor) for tensor in lists), sizes


def listed_by_columns(
    mask: MaskBlocks | None, kv_length: int, device: torch.device
) -> tuple[tuple[Tensor, ...], list[int]]:
    """Return the same by columns of blocks, each with its rows of blocks in ascending order."""
    if mask is None:
        return no_lists(device)
    counts, blocks, full_counts, full_blocks, slots = by_columns(mask, kv_length)
    lists = (counts, blocks, full_counts, full_blocks, mask.bits, slots)
    rows = mask.kv_num_blocks.shape[2]
    return tuple(or_one(tensor) for tensor in lists), [*counts.shape, rows, rows]


def no_lists(device: torch.device) -> tuple[tuple[Tensor, ...], list[int]]:
    """Return what stands for the lists of a call without a mask, and is never read."""
    none, bits, wide = (
        torch.zeros(1, dtype=dtype, device=device)
        for dtype in (torch.int32, torch.uint8, torch.int64)
    )
    return (none, none, none, none, bits, wide), [1, 1, 1, 1, 1]
