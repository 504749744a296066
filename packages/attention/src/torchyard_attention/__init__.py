"""FlexAttention with torch's signatures, on every device, forward and backward."""

from __future__ import annotations

from torchyard_attention import masks, scores
from torchyard_attention._api import AuxOutput, AuxRequest, explain, flex_attention
from torchyard_attention._autocast import autocast_inputs
from torchyard_attention._block_mask import BlockMask, create_block_mask
from torchyard_attention._errors import (
    DoubleBackwardError,
    PagesExhaustedError,
    ProgramError,
    TransformError,
)
from torchyard_attention._gradients import (
    AttentionPartGradients,
    attention_gradients,
    captured_tensors,
)
from torchyard_attention._masks import and_masks, create_mask, noop_mask, or_masks
from torchyard_attention._merge import merge_states
from torchyard_attention._paged_cache import CacheMemory, PagedKVCache
from torchyard_attention._paged_step import PagedStep
from torchyard_attention._validation import as_block_mask
from torchyard_attention._varlen import varlen_attention

__all__ = [
    "AttentionPartGradients",
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "CacheMemory",
    "DoubleBackwardError",
    "PagedKVCache",
    "PagedStep",
    "PagesExhaustedError",
    "ProgramError",
    "TransformError",
    "and_masks",
    "as_block_mask",
    "attention_gradients",
    "autocast_inputs",
    "captured_tensors",
    "create_block_mask",
    "create_mask",
    "explain",
    "flex_attention",
    "masks",
    "merge_states",
    "noop_mask",
    "or_masks",
    "scores",
    "varlen_attention",
]
