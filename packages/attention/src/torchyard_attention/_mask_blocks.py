"""From a mask_mod's program to mask blocks, one stripe of block rows at a time.

Never holds a Sq x Sk mask: a stripe of block rows is evaluated, each block is found hidden, partial
or full, and of the partial ones the bits are kept.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention._evaluate import evaluate_mask, evaluate_mask_blocks
from torchyard_attention.contract import MaskBlocks

# Elements of one stripe: large enough to hide Python's overhead, small enough for the cache.
_STRIPE: Final = 1 << 21


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
        device: where the result lies.
    """
    batch, heads, q_length, kv_length = sizes
    rows, keys = block_size
    q_blocks, kv_blocks = _ceil_div(q_length, rows), _ceil_div(kv_length, keys)
    b, h = torch.arange(batch, device=device), torch.arange(heads, device=device)
    k = torch.arange(kv_length, device=device)
    stripe = max(1, _STRIPE // max(1, batch * heads * rows * kv_length))
    counts, bits = [], []
    for first in range(0, q_blocks, stripe):
        last = min(first + stripe, q_blocks)
        q = torch.arange(first * rows, min(last * rows, q_length), device=device)
        visible = _as_blocks(
            evaluate_mask(text, b, h, q, k, captured), last - first, kv_blocks, block_size
        )
        count = visible.sum(dim=(-2, -1), dtype=torch.int32)
        counts.append(count)
        bits.append(visible[(count > 0) & (count < rows * keys)])
    shape = (batch, heads, q_blocks, kv_blocks)
    count = torch.cat(counts, dim=2) if counts else torch.zeros(shape, device=device)
    # As in torch, a block that the end of a sequence cuts is never full.
    full = count == rows * keys
    partial = (count > 0) & ~full
    # A stripe holds (batch, head, row) in this order; the slots must count through all rows of a
    # head before the next head, so the stripes are put in order by their blocks' position.
    position = torch.arange(partial.numel(), device=device).view(shape)
    order = [
        position[:, :, first : first + stripe][partial[:, :, first : first + stripe]]
        for first in range(0, q_blocks, stripe)
    ]
    empty = torch.zeros((0, rows, keys), dtype=torch.bool, device=device)
    kept = torch.cat(bits) if bits else empty
    slots = torch.cat(order).argsort() if order else torch.zeros(0, dtype=torch.int64)
    return _assemble(partial, full, pack_bits(kept[slots]), block_size)


def partial_bits(
    text: str,
    captured: tuple[Tensor, ...],
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Tensor:
    """Evaluate a mask program on the listed blocks only and return their bits, in list order."""
    (rows, keys), (q_length, kv_length) = block_size, lengths
    device = kv_num_blocks.device
    places = torch.arange(kv_indices.shape[-1], device=device) < kv_num_blocks[..., None]
    where_b, where_h, where_row, where_place = places.nonzero(as_tuple=True)
    columns = kv_indices[where_b, where_h, where_row, where_place].long()
    q = where_row[:, None] * rows + torch.arange(rows, device=device)
    k = columns[:, None] * keys + torch.arange(keys, device=device)
    inside = (q < q_length)[:, :, None] & (k < kv_length)[:, None, :]
    visible = torch.zeros((len(columns), rows, keys), dtype=torch.bool, device=device)
    q_safe, k_safe = q.clamp(max=max(q_length - 1, 0)), k.clamp(max=max(kv_length - 1, 0))
    chunk = max(1, _STRIPE // (rows * keys))
    for first in range(0, len(columns), chunk):
        part = slice(first, first + chunk)
        visible[part] = evaluate_mask_blocks(
            text, where_b[part], where_h[part], q_safe[part], k_safe[part], captured
        )
    return pack_bits(visible & inside)


def check_lists(
    kv_num_blocks: Tensor,
    kv_indices: Tensor,
    full_kv_num_blocks: Tensor,
    full_kv_indices: Tensor,
) -> None:
    """Raise ValueError unless every listed block exists and is listed once.

    A kernel reads at these places, and a block that is listed twice would be counted twice.
    """
    blocks = kv_indices.shape[-1]
    listed = torch.zeros_like(kv_indices)
    for name, counts, indices in (
        ("kv", kv_num_blocks, kv_indices),
        ("full_kv", full_kv_num_blocks, full_kv_indices),
    ):
        if counts.numel() and not 0 <= int(counts.min()) <= int(counts.max()) <= blocks:
            raise ValueError(
                f"{name}_num_blocks: expected counts from 0 to {blocks}, got "
                f"{int(counts.min())} to {int(counts.max())}"
            )
        used = torch.arange(blocks, device=counts.device) < counts[..., None]
        wrong = indices[used & ((indices < 0) | (indices >= blocks))]
        if wrong.numel():
            raise ValueError(
                f"{name}_indices: expected block numbers from 0 to {blocks - 1}, got "
                f"{int(wrong[0])}"
            )
        places = torch.where(used, indices, 0).long()
        listed.scatter_add_(-1, places, used.to(torch.int32))
    if listed.numel() and int(listed.max()) > 1:
        batch, head, row, column = (listed > 1).nonzero()[0].tolist()
        raise ValueError(
            f"kv_indices, full_kv_indices: expected each block once, got block {column} twice in "
            f"row {row} of batch {batch}, head {head}"
        )


def pack_bits(visible: Tensor) -> Tensor:
    """Pack bool [N, BQ, BK] into uint8 [N, BQ, ceil(BK / 8)], lowest bit first."""
    count, rows, keys = visible.shape
    padded = torch.nn.functional.pad(visible, (0, -keys % 8))
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=visible.device)
    bytes_ = padded.view(count, rows, padded.shape[2] // 8, 8).to(torch.uint8) * weights
    return bytes_.sum(dim=-1, dtype=torch.uint8).contiguous()


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
    """Cut bool [B, H, Q, K] into [B, H, q_blocks, kv_blocks, BQ, BK], padded with False."""
    rows, keys = block_size
    batch, heads, q_length, kv_length = visible.shape
    padded = torch.nn.functional.pad(
        visible, (0, kv_blocks * keys - kv_length, 0, q_blocks * rows - q_length)
    )
    return padded.reshape(batch, heads, q_blocks, rows, kv_blocks, keys).transpose(3, 4)


def _ceil_div(length: int, size: int) -> int:
    return -(-length // size)
