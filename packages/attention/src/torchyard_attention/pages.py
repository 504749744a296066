"""Keys and values in the pages of a cache, as an implementation of ``attention/1`` gets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.contract._call import KeyPages

if TYPE_CHECKING:
    from torchyard_attention.contract import Forward

__all__ = ["KeyPages", "gathered", "reads_pages"]

_ROWS_PER_BLOCK = 128
_KEYS_PER_BLOCK = 128


def reads_pages(forward: Forward) -> bool:
    """Return whether a forward takes calls with pages: it says so with ``reads_pages = True``.

    Any other gets the call of :func:`gathered`.
    """
    return getattr(forward, "reads_pages", False) is True


def gathered(call: AttentionCall) -> AttentionCall:
    """Return the same call with keys and values copied to [B, Hkv, Sk, ...], and no pages.

    Sk is the longest sequence. Where others are shorter and the call has no mask, it gets one.
    """
    assert call.pages is not None
    table, lengths = call.pages.table, call.pages.lengths
    ends = lengths.tolist()
    longest = max(ends, default=0)
    page_size = call.key.shape[2]
    used = table[:, : -(-longest // page_size)].long()

    def laid_out(pool: Tensor) -> Tensor:
        # [B, N, Hkv, page size, D]
        return pool[used].transpose(1, 2).flatten(2, 3)[:, :, :longest]

    mask = call.mask
    if mask is None and any(end != longest for end in ends):
        mask = _ends_mask(lengths, call.query.shape[2], longest)
    return replace(call, key=laid_out(call.key), value=laid_out(call.value), mask=mask, pages=None)


def _ends_mask(lengths: Tensor, q_length: int, kv_length: int) -> MaskBlocks:
    """Return the mask that hides the keys beyond each sequence's length."""
    keys, batch, device = _KEYS_PER_BLOCK, lengths.shape[0], lengths.device
    rows = max(1, min(_ROWS_PER_BLOCK, q_length))
    q_blocks, kv_blocks = -(-q_length // rows), -(-kv_length // keys)
    full, rest = lengths.long() // keys, lengths.long() % keys
    shape = (batch, 1, q_blocks)
    order = torch.arange(kv_blocks, dtype=torch.int32, device=device)
    # One partial block per row of blocks: the bits of its own sequence's end.
    seen = torch.arange(keys, device=device) < rest[:, None]
    weights = 1 << torch.arange(8, device=device)
    octets = (seen.view(batch, keys // 8, 8) * weights).sum(-1).to(torch.uint8)
    height = torch.arange(q_blocks * rows, device=device).view(q_blocks, rows, 1) < q_length
    bits = octets[:, None, None] * height.to(torch.uint8)
    return MaskBlocks(
        (rows, keys),
        (rest > 0).to(torch.int32)[:, None, None].expand(shape).contiguous(),
        full.to(torch.int32)[:, None, None, None].expand(*shape, 1).contiguous(),
        full.to(torch.int32)[:, None, None].expand(shape).contiguous(),
        order.expand(*shape, kv_blocks).contiguous(),
        bits.view(batch * q_blocks, rows, keys // 8).contiguous(),
        torch.arange(batch * q_blocks, device=device).view(shape),
    )
