"""Lists of blocks: their checks, and the other forms that torch has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._mask_blocks._evaluation import ordered
from torchyard_attention._validation import positions

__all__ = [
    "DEFAULT_BLOCK_SIZE",
    "WriteOrder",
    "checked_lists",
    "dense_blocks",
    "fitted",
    "length_of",
    "pair_of",
    "transposed",
    "write_order",
]

DEFAULT_BLOCK_SIZE: Final = 128

# Of a block that is longer than the sequence, no more positions than these are held.
_LONGEST_BLOCK: Final = 4096


class WriteOrder(NamedTuple):
    """In which order blocks of keys add to a query's gradient, for torch's deterministic kernels.

    No kernel here reads it: gradients are deterministic without.

    Attributes:
        computed: whether the orders follow from the lists; else they are what was given.
        partial, full: int32 [B, H, Kb, Qb]: of each entry of q_indices and full_q_indices, its
            rank among the blocks of its row.
        kv_order: the order of columns that was given, if any.
        descending: whether columns are ranked from the last to the first; None: nothing was said.
    """

    computed: bool = False
    partial: Tensor | None = None
    full: Tensor | None = None
    kv_order: Tensor | None = None
    descending: bool | None = None

    @classmethod
    def given(
        cls, partial: Tensor | None, full: Tensor | None, order: Tensor | bool | None
    ) -> WriteOrder:
        """Return the order from the arguments of ``BlockMask.from_kv_blocks``.

        Raises:
            ValueError: there is an order for full blocks alone.
        """
        of = "BlockMask.from_kv_blocks"
        for name, tensor in (("dq_write_order", partial), ("dq_write_order_full", full)):
            if tensor is not None:
                arguments.tensor(of, name, tensor, dtypes=INDEX_DTYPES)
        if full is not None and partial is None:
            raise ValueError("dq_write_order_full: expected dq_write_order besides, got None")
        if isinstance(order, Tensor):
            arguments.tensor(of, "dq_kv_order", order, dtypes=INDEX_DTYPES)
            return cls(partial=partial, full=full, kv_order=order)
        if order is not None:
            order = arguments.boolean(of, "dq_kv_order", order)
        return cls(partial=partial, full=full, descending=order)


def write_order(dense: Tensor, q_indices: Tensor, descending: bool) -> Tensor:
    """Return the rank of each entry of ``q_indices`` among its row's visible blocks.

    Args:
        dense: bool [B, H, Qb, Kb]: which blocks are visible, in part or whole.
        q_indices: int32 [B, H, Kb, Qb].
        descending: whether columns are ranked from the last to the first.
    """
    before = dense.cumsum(-1) - dense.long()
    rank = dense.sum(-1, keepdim=True) - 1 - before if descending else before
    return rank.transpose(-1, -2).gather(-1, q_indices.long()).to(torch.int32)


def transposed(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Return, of bool [B, H, Qb, Kb], the lists of each column: counts and rows of blocks."""
    return ordered(dense.transpose(-1, -2))


def dense_blocks(counts: Tensor, indices: Tensor, kv_blocks: int) -> Tensor:
    """Return which blocks are listed: bool [B, H, Qb, Kb]."""
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    # Unlisted places may hold anything; they all write to one place more, which is dropped.
    places = torch.where(listed, indices, kv_blocks).long()
    dense = torch.zeros((*counts.shape, kv_blocks + 1), dtype=torch.bool, device=counts.device)
    return dense.scatter(-1, places, True)[..., :kv_blocks]


# What numbers of blocks may be given as; a bool is none.
INDEX_DTYPES: Final = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


def pair_of(block_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return a block size as (BQ, BK)."""
    of = "BlockMask"
    if isinstance(block_size, tuple | list):
        rows, keys = arguments.sequence(
            of, "BLOCK_SIZE", block_size, _size, expected="one or two sizes", length=2
        )
        return rows, keys
    size = _size(of, "BLOCK_SIZE", block_size)
    return size, size


def fitted(block_size: tuple[int, int], lengths: tuple[int, int]) -> tuple[int, int]:
    """Return a block size limited to little more than the sequences.

    torch's empty masks are one block of 2**30 x 2**30, and every partial block has its bits.
    """
    rows, keys = (
        min(size, max(length, _LONGEST_BLOCK))
        for size, length in zip(block_size, lengths, strict=True)
    )
    return rows, keys


def _size(of: str, name: str, value: object) -> int:
    return positions(of, name, value, least=1)


def checked_lists(
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    full_kv_num_blocks: Tensor | None,
    full_kv_indices: Tensor | None,
    block_size: int | tuple[int, int],
    seq_lengths: tuple[int, int] | None,
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], tuple[int, int], tuple[int, int]]:
    """Return the four lists as a mask stores them, (Sq, Sk) and (BQ, BK).

    Raises:
        ValueError, TypeError: shapes or dtypes do not fit; names the argument.
    """
    of = "BlockMask.from_kv_blocks"
    pair = pair_of(block_size)
    if seq_lengths is not None:
        seq_lengths = checked_lengths(of, seq_lengths)
    given = {
        "kv_num_blocks": kv_num_blocks,
        "kv_indices": kv_indices,
        "full_kv_num_blocks": full_kv_num_blocks,
        "full_kv_indices": full_kv_indices,
    }
    for name, tensor in given.items():
        if tensor is not None or not name.startswith("full"):
            arguments.tensor(of, name, tensor)
            if tensor is not None and tensor.device != kv_num_blocks.device:
                raise ValueError(
                    f"{of}: {name}: expected a tensor on {kv_num_blocks.device}, as "
                    f"kv_num_blocks, got one on {tensor.device}"
                )
    _check_shapes("kv", kv_num_blocks, kv_indices)
    if (full_kv_num_blocks is None) != (full_kv_indices is None):
        raise ValueError("full_kv_num_blocks, full_kv_indices: expected both or neither, got one")
    if full_kv_num_blocks is None or full_kv_indices is None:
        full_kv_num_blocks = torch.zeros_like(kv_num_blocks)
        full_kv_indices = torch.zeros_like(kv_indices)
    _check_shapes("full_kv", full_kv_num_blocks, full_kv_indices)
    q_blocks, kv_blocks = kv_indices.shape[-2:]
    if seq_lengths is None:
        seq_lengths = (q_blocks * pair[0], kv_blocks * pair[1])
    expected = tuple(-(-n // size) for n, size in zip(seq_lengths, pair, strict=True))
    if q_blocks != expected[0] or max(kv_blocks, full_kv_indices.shape[-1]) > expected[1]:
        raise ValueError(
            f"kv_indices: expected {list(expected)} blocks for lengths {list(seq_lengths)} and "
            f"BLOCK_SIZE {list(pair)}, got {[q_blocks, kv_blocks]}"
        )
    lists = (
        kv_num_blocks.to(torch.int32).contiguous(),
        kv_indices.to(torch.int32).contiguous(),
        full_kv_num_blocks.to(torch.int32).contiguous(),
        full_kv_indices.to(torch.int32).contiguous(),
    )
    return lists, seq_lengths, fitted(pair, seq_lengths)


def _check_shapes(name: str, counts: Tensor, indices: Tensor) -> None:
    """Raise unless two tensors have the shapes and dtypes of a list of blocks."""
    if counts.ndim != 3 or indices.ndim != 4 or indices.shape[:3] != counts.shape:
        raise ValueError(
            f"{name}_num_blocks, {name}_indices: expected shapes [B, H, Qb] and [B, H, Qb, K], "
            f"got {list(counts.shape)} and {list(indices.shape)}"
        )
    for part, tensor in (("num_blocks", counts), ("indices", indices)):
        if tensor.dtype not in INDEX_DTYPES:
            raise TypeError(
                f"{name}_{part}: expected integers, such as int32, got {tensor.dtype}; which "
                f"blocks are visible as bool or float is no list of them"
            )


def checked_lengths(of: str, seq_lengths: object) -> tuple[int, int]:
    """Return (Sq, Sk)."""
    q_length, kv_length = arguments.sequence(
        of, "seq_lengths", seq_lengths, positions, expected="two lengths", length=2
    )
    return q_length, kv_length


def length_of(name: str, blocks: Sequence[int], length: int, size: int) -> int:
    """Return how many positions some blocks of a sequence hold."""
    if not isinstance(blocks, range):
        of = "BlockMask.part"
        blocks = arguments.sequence(of, name, blocks, arguments.integer, expected="numbers")
    count = -(-length // size)
    if len(set(blocks)) != len(blocks) or any(not 0 <= block < count for block in blocks):
        raise ValueError(f"{name}: expected different blocks of 0 to {count - 1}, got {blocks}")
    heights = [min(size, length - block * size) for block in blocks]
    if any(height < size for height in heights[:-1]):
        raise ValueError(
            f"{name}: the sequence's last block holds fewer than {size} positions and can only be "
            f"listed last, got {blocks}"
        )
    return sum(heights)
