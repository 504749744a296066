"""FlexAttention with torch's signatures, on every device, forward and backward."""

from __future__ import annotations

from torchyard_attention import masks, scores
from torchyard_attention._api import AuxOutput, AuxRequest, autocast_inputs, explain, flex_attention
from torchyard_attention._block_mask import BlockMask, create_block_mask
from torchyard_attention._block_mask._operand import as_block_mask
from torchyard_attention._errors import (
    DoubleBackwardError,
    PagesExhaustedError,
    ProgramError,
    TransformError,
)
from torchyard_attention._paged._cache import CacheMemory, PagedKVCache
from torchyard_attention._paged._step import PagedStep
from torchyard_attention._parts._gradients import (
    AttentionPartGradients,
    attention_gradients,
    captured_tensors,
)
from torchyard_attention._parts._merge import merge_states
from torchyard_attention._varlen._api import varlen_attention
from torchyard_attention.masks._combination import and_masks, create_mask, noop_mask, or_masks

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
