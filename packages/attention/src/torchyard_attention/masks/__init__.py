"""Ready-made masks that know their structure.

Each is a mask_mod, ``(b, h, q_idx, kv_idx) -> bool``, for this package's and torch's flex_attention
alike. ``create_block_mask`` evaluates only those blocks of it of which its structure is unsure;
``and_masks`` and ``or_masks`` keep the structure. A mask of your own takes part by having a method
``visibility``, see :class:`StructuredMask`.
"""

from __future__ import annotations

from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
)
from torchyard_attention.masks._band import causal, dilated, sliding_window
from torchyard_attention.masks._block_diffusion import block_diffusion
from torchyard_attention.masks._document import document, shared_prefix, varlen
from torchyard_attention.masks._natten import natten_1d, natten_2d
from torchyard_attention.masks._prefix import global_local, padding, prefix_lm
from torchyard_attention.masks._tree import tree

__all__ = [
    "BlockRows",
    "Intervals",
    "StructuredMask",
    "Visibility",
    "block_diffusion",
    "causal",
    "dilated",
    "document",
    "global_local",
    "natten_1d",
    "natten_2d",
    "padding",
    "prefix_lm",
    "shared_prefix",
    "sliding_window",
    "tree",
    "varlen",
]
