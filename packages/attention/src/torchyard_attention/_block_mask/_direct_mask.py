"""A block mask as a direct forward takes it."""

from __future__ import annotations

from torchyard_attention._block_mask import BlockMask
from torchyard_attention._ops._arguments import stale
from torchyard_attention.contract import MaskBlocks
from torchyard_attention.direct import DirectMask

__all__ = ["direct_mask"]


def direct_mask(mask: BlockMask) -> DirectMask | None:
    """Return the mask as a direct forward takes it; None where its bits must be made anew, or where
    it is for a query of one batch or one head, which is checked elsewhere."""
    if mask.mask_captured and stale(mask.mask_captured, mask.mask_versions):
        return None
    found: DirectMask | None = mask._direct
    if found is None:
        if any(mask.of_first):
            return None
        blocks = MaskBlocks(mask.BLOCK_SIZE, *mask.block_tensors())
        found = mask._direct = DirectMask(blocks, mask.seq_lengths, mask.causal)
    return found
