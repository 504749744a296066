"""Masks as dense booleans: the meaning of MaskBlocks."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._evaluation import unpack_bits
from torchyard_attention.contract import MaskBlocks

__all__ = ["dense_visibility"]


def dense_visibility(mask: MaskBlocks, q_length: int, kv_length: int) -> Tensor:
    """Return which pairs a mask leaves visible.

    Args:
        mask: the mask as blocks.
        q_length, kv_length: Sq and Sk.

    Returns:
        bool [Bm, Hm, Sq, Sk] on the mask's device. For references and tests: it is what an
        implementation avoids.
    """
    rows, keys = mask.block_size
    batch, heads, q_blocks = mask.kv_num_blocks.shape
    kv_blocks = -(-kv_length // keys)
    device = mask.kv_indices.device
    shape = (batch, heads, q_blocks, kv_blocks, rows, keys)
    blocks = torch.zeros(shape, dtype=torch.bool, device=device)

    place = torch.arange(mask.kv_indices.shape[3], device=device)
    at = (place < mask.kv_num_blocks.unsqueeze(-1)).nonzero(as_tuple=True)
    slots = mask.first_partial[at[:3]] + at[3]
    blocks[(*at[:3], mask.kv_indices[at].long())] = unpack_bits(mask.bits[slots], keys)

    place = torch.arange(mask.full_kv_indices.shape[3], device=device)
    at = (place < mask.full_kv_num_blocks.unsqueeze(-1)).nonzero(as_tuple=True)
    blocks[(*at[:3], mask.full_kv_indices[at].long())] = True

    dense = blocks.transpose(3, 4).reshape(batch, heads, q_blocks * rows, kv_blocks * keys)
    return dense[:, :, :q_length, :kv_length]
