"""From a mask_mod's program to mask blocks, one stripe of block rows at a time.

Never holds a Sq x Sk mask: a stripe of block rows is evaluated, each block is classified as hidden,
partial or full, and the bits of the partial ones are stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._cost import check_memory, check_pairs
from torchyard_attention._mods._evaluate import evaluate_mask, evaluate_mask_blocks
from torchyard_attention.contract import MaskBlocks

# Pairs of the blocks that are evaluated together: with what becomes of them, a core's L2; enough
# of them to hide Python's overhead.
_TILE: Final = 1 << 18

# Flags, places and both lists of a block, while they are put in order.
_BYTES_PER_BLOCK: Final = 34

_GATHER_BITS: Final = 0x0102040810204080 if sys.byteorder == "little" else -0x7FBFDFEFF7FBFDFF


def blocks_of(
    text: str,
    captured: tuple[Tensor, ...],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks:
    """Evaluate a mask program everywhere and return it as blocks.

    Args:
        text: the program.
        captured: its captured tensors.
        sizes: (Bm, Hm, Sq, Sk).
        block_size: (BQ, BK).
        device: of the result.

    Raises:
        ValueError: it takes more memory than there is, or more than ``MOST_PAIRS`` evaluations.
    """
    batch, heads, q_length, kv_length = sizes
    rows, keys = block_size
    q_blocks, kv_blocks = _ceil_div(q_length, rows), _ceil_div(kv_length, keys)
    b, h = torch.arange(batch, device=device), torch.arange(heads, device=device)
    pairs = max(1, batch * heads * rows * keys)  # of one block of every batch and head
    width = min(max(1, _TILE // pairs), max(1, kv_blocks))
    stripe = max(1, _TILE // (pairs * width))
    held = stripe * rows * _ceil_div(keys, 8) + q_blocks * _BYTES_PER_BLOCK
    check_memory(sizes, block_size, batch * heads * kv_blocks * held, device)
    check_pairs((batch, heads, q_blocks * rows, kv_blocks * keys))
    whole = visible_bytes(keys, device)
    anything, everything, bits = [], [], []
    for first in range(0, q_blocks if kv_blocks else 0, stripe):
        last = min(first + stripe, q_blocks)
        q = torch.arange(first * rows, min(last * rows, q_length), device=device)
        tiles = []
        for left in range(0, kv_blocks, width):
            right = min(left + width, kv_blocks)
            k = torch.arange(left * keys, min(right * keys, kv_length), device=device)
            visible = evaluate_mask(text, b, h, q, k, captured)
            # Packed at once: from here on there is an eighth of the bytes.
            tiles.append(_as_blocks(visible, last - first, right - left, block_size))
        packed = torch.cat(tiles, dim=3) if len(tiles) > 1 else tiles[0]
        some = (packed != 0).any(-1).any(-1)
        # As in torch, a block that the end of a sequence cuts is never full.
        all_ = (packed == whole).all(-1).all(-1)
        anything.append(some)
        everything.append(all_)
        bits.append(packed[some & ~all_])
    shape = (batch, heads, q_blocks, kv_blocks)
    none = torch.zeros(shape, dtype=torch.bool, device=device)
    full = torch.cat(everything, dim=2) if everything else none
    partial = (torch.cat(anything, dim=2) if anything else none) & ~full
    # A stripe holds (batch, head, row) in this order; the slots must count through all rows of a
    # head before the next head, so the stripes are put in order by their blocks' position.
    position = torch.arange(partial.numel(), device=device).view(shape)
    order = [
        position[:, :, first : first + stripe][partial[:, :, first : first + stripe]]
        for first in range(0, q_blocks if kv_blocks else 0, stripe)
    ]
    empty = torch.zeros((0, rows, _ceil_div(keys, 8)), dtype=torch.uint8, device=device)
    kept = torch.cat(bits) if bits else empty
    if batch * heads > 1 and order:
        kept = kept[torch.cat(order).argsort()]
    return _assemble(partial, full, kept, block_size)


def partial_bits(
    text: str,
    captured: tuple[Tensor, ...],
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Tensor:
    """Evaluate a mask program on the listed blocks only and return their bits, in list order."""
    places = torch.arange(kv_indices.shape[-1], device=kv_num_blocks.device)
    where = (places < kv_num_blocks[..., None]).nonzero(as_tuple=True)
    place = (where[0], where[1], where[2], kv_indices[where].long())
    rows, row_bytes = block_size[0], _ceil_div(block_size[1], 8)
    bits = torch.empty(
        (len(where[0]), rows, row_bytes), dtype=torch.uint8, device=kv_num_blocks.device
    )
    done = 0
    for part in block_bits(text, captured, place, lengths, block_size):
        bits[done : done + len(part)] = part
        done += len(part)
    return bits


def block_bits(
    text: str,
    captured: tuple[Tensor, ...],
    place: tuple[Tensor, Tensor, Tensor, Tensor],
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Iterator[Tensor]:
    """Evaluate a mask program on some blocks and yield their bits, a few blocks at a time.

    Args:
        text: the program.
        captured: its captured tensors.
        place: int64 [n] each: the blocks' batches, heads, rows and columns.
        lengths: (Sq, Sk).
        block_size: (BQ, BK).
    """
    (rows, keys), (q_length, kv_length) = block_size, lengths
    device = place[0].device
    in_row, in_column = torch.arange(rows, device=device), torch.arange(keys, device=device)
    chunk = max(1, _TILE // (rows * keys))
    for first in range(0, len(place[0]), chunk):
        b, h, row, column = (part[first : first + chunk] for part in place)
        q, k = row[:, None] * rows + in_row, column[:, None] * keys + in_column
        visible = evaluate_mask_blocks(
            text, b, h, q.clamp(max=q_length - 1), k.clamp(max=kv_length - 1), captured
        )
        bits = pack_bits(visible)
        bits &= pack_bits((k < kv_length)[:, None, :])
        bits &= (q < q_length)[:, :, None].to(torch.uint8) * 255
        yield bits


def check_lists(
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    full_kv_num_blocks: Tensor,
    full_kv_indices: Tensor,
    *,
    blocks: int,
) -> None:
    """Raise ValueError unless every listed block is one of ``blocks`` and is listed once.

    A kernel reads at these places, and a block that is listed twice would be counted twice.
    """
    listed = []
    for name, counts, indices in (
        ("kv", kv_num_blocks, kv_indices),
        ("full_kv", full_kv_num_blocks, full_kv_indices),
    ):
        most = min(blocks, indices.shape[-1])
        if counts.numel() and not 0 <= int(counts.min()) <= int(counts.max()) <= most:
            raise ValueError(
                f"{name}_num_blocks: expected counts from 0 to {most}, got "
                f"{int(counts.min())} to {int(counts.max())}"
            )
        used = torch.arange(indices.shape[-1], device=counts.device) < counts[..., None]
        wrong = indices[used & ((indices < 0) | (indices >= blocks))]
        if wrong.numel():
            raise ValueError(
                f"{name}_indices: expected block numbers from 0 to {blocks - 1}, got "
                f"{int(wrong[0])}"
            )
        listed.append(torch.where(used, indices, blocks))
    ordered_lists = torch.cat(listed, dim=-1).sort(dim=-1).values
    left, right = ordered_lists[..., :-1], ordered_lists[..., 1:]
    twice = ((left == right) & (right < blocks)).nonzero()
    if len(twice):
        batch, head, row, place = twice[0].tolist()
        column = int(left[batch, head, row, place])
        raise ValueError(
            f"kv_indices, full_kv_indices: expected each block once, got block {column} twice in "
            f"row {row} of batch {batch}, head {head}"
        )


def pack_bits(visible: Tensor) -> Tensor:
    """Pack bool [N, BQ, BK] into uint8 [N, BQ, ceil(BK / 8)], lowest bit first."""
    padded = visible.contiguous()
    if visible.shape[2] % 8:
        padded = torch.nn.functional.pad(visible, (0, -visible.shape[2] % 8))
    # Eight bytes of 0 and 1 as one word: the product moves bit 0 of byte i to bit 56 + i.
    words = padded.view(torch.int64) * _GATHER_BITS
    return words.bitwise_right_shift_(56).to(torch.uint8)


def visible_bytes(keys: int, device: torch.device) -> Tensor:
    """Return the bytes of a row of a block that sees all its keys: uint8 [ceil(keys / 8)]."""
    return pack_bits(torch.ones((1, 1, keys), dtype=torch.bool, device=device)).flatten()


def unpack_bits(bits: Tensor, keys: int) -> Tensor:
    """Unpack uint8 [..., ceil(keys / 8)] into bool [..., keys]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=bits.device)
    flags = (bits[..., None] >> shifts) & 1
    return flags.flatten(-2)[..., :keys].to(torch.bool)


def first_slots(kv_num_blocks: Tensor) -> Tensor:
    """Return where each row of blocks begins in ``bits``: an exclusive sum over all rows."""
    counts = kv_num_blocks.flatten().to(torch.int64)
    return (counts.cumsum(0) - counts).view(kv_num_blocks.shape)


def _assemble(
    partial: Tensor, full: Tensor, bits: Tensor, block_size: tuple[int, int]
) -> MaskBlocks:
    kv_num_blocks, kv_indices = ordered(partial)
    full_kv_num_blocks, full_kv_indices = ordered(full)
    return MaskBlocks(
        block_size=block_size,
        kv_num_blocks=kv_num_blocks,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_num_blocks,
        full_kv_indices=full_kv_indices,
        bits=bits,
        first_partial=first_slots(kv_num_blocks),
    )


def ordered(listed: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many blocks each row lists and all block numbers, the listed ones first."""
    counts = listed.sum(dim=-1, dtype=torch.int32)
    indices = listed.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return counts, indices.to(torch.int32).contiguous()


def _as_blocks(
    visible: Tensor, q_blocks: int, kv_blocks: int, block_size: tuple[int, int]
) -> Tensor:
    """Cut bool [B, H, Q, K] into bits [B, H, q_blocks, kv_blocks, BQ, ceil(BK / 8)], 0 beyond."""
    rows, keys = block_size
    batch, heads, q_length, kv_length = visible.shape
    beyond = (0, kv_blocks * keys - kv_length, 0, q_blocks * rows - q_length)
    if any(beyond):
        visible = torch.nn.functional.pad(visible, beyond)
    bits = pack_bits(visible.reshape(-1, kv_blocks, keys))
    return bits.view(batch, heads, q_blocks, rows, kv_blocks, -1).transpose(3, 4)


def _ceil_div(length: int, size: int) -> int:
    return -(-length // size)
