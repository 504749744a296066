"""A block mask unpacked for one block of queries at a time.

Nothing here reads a value back to the host, so a graph capture can hold it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks

__all__ = ["BlockRows"]


class BlockRows:
    """The visible keys of a block of queries.

    Args:
        mask: the mask; tensors as the contract says.
        queries, keys: Sq and Sk.
    """

    def __init__(self, mask: MaskBlocks, *, queries: int, keys: int) -> None:
        self._mask = mask
        self._queries = queries
        self._keys = keys
        rows, row_bytes = mask.bits.shape[1:]
        # One block that hides everything, for the places that no partial block takes.
        nothing = mask.bits.new_zeros(1, rows, row_bytes)
        self._bits = torch.cat([mask.bits, nothing])

    def visible(self, block: int) -> Tensor:
        """Return which keys each row of a block of queries sees.

        Args:
            block: index of the block of queries.

        Returns:
            bool [Bm, Hm, R, Sk], where R is BQ, or less in the last block.
        """
        rows, keys = self._mask.block_size
        full = self._slots(
            self._mask.full_kv_num_blocks[:, :, block], self._mask.full_kv_indices[:, :, block]
        )
        partial = self._slots(
            self._mask.kv_num_blocks[:, :, block], self._mask.kv_indices[:, :, block]
        )
        first = self._mask.first_partial[:, :, block, None]
        nothing = self._bits.shape[0] - 1
        places = torch.where(partial >= 0, first + partial, nothing)
        # [Bm, Hm, Kb, BQ, bytes] -> [Bm, Hm, BQ, Kb, BK]
        packed = self._bits[places].movedim(3, 2)
        shifts = torch.arange(8, device=packed.device, dtype=torch.uint8)
        bits = (packed.unsqueeze(-1) >> shifts) & 1
        seen = bits.flatten(-2)[..., :keys].bool() | (full >= 0)[:, :, None, :, None]
        height = min(rows, self._queries - block * rows)
        return seen.flatten(-2)[:, :, :height, : self._keys]

    def _slots(self, counts: Tensor, indices: Tensor) -> Tensor:
        """Return int64 [Bm, Hm, Kb]: each key block's place in the list of indices, or -1."""
        blocks = -(-self._keys // self._mask.block_size[1])
        place = torch.arange(indices.shape[-1], device=indices.device).expand(indices.shape)
        listed = place < counts.unsqueeze(-1)
        # Unlisted entries may hold anything; they all land in one extra place, which is dropped.
        target = torch.where(listed, indices.long(), blocks)
        slots = torch.full((*indices.shape[:-1], blocks + 1), -1, device=indices.device)
        return slots.scatter_(-1, target, place)[..., :blocks]
