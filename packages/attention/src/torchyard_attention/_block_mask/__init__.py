"""Block masks: the class, its constructors, and its registration as a tree of tensors."""

from __future__ import annotations

from torchyard_attention._block_mask._create import create_block_mask
from torchyard_attention._block_mask._lists import DEFAULT_BLOCK_SIZE
from torchyard_attention._block_mask._mask import BlockMask
from torchyard_attention._block_mask._recorded import MaskMod
from torchyard_attention._block_mask._tree import register

register()

__all__ = ["DEFAULT_BLOCK_SIZE", "BlockMask", "MaskMod", "create_block_mask"]
