"""The mask of a layer, made by this package, by transformers or by the user."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as stock
from torch.utils.weak import WeakTensorKeyDictionary

from torchyard_attention._block_mask import BlockMask, create_block_mask
from torchyard_attention._block_mask._operand import as_block_mask
from torchyard_attention._torch_compat import version_of
from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._mask import band_blocks
from torchyard_attention.transformers._prepared import PreparedMask

__all__ = ["given_mask"]

# A model gives the same tensor to all of its layers.
_KEPT: Any = WeakTensorKeyDictionary()


def given_mask(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    attention_mask: PreparedMask | BlockMask | stock.BlockMask | Tensor | None,
    is_causal: bool | None,
    sliding_window: int | None,
) -> PreparedMask:
    """Return the mask of a call.

    Args:
        module: the layer.
        query: [B, Hq, Sq, D].
        key: [B, Hkv, Sk, D].
        attention_mask: prepared by this package's mask function, a block mask, or a tensor as
            ``attention`` takes it.
        is_causal, sliding_window: as there.

    Raises:
        UnsupportedArgumentError: the mask is not for this call, or of no known kind.
    """
    sizes = (query.shape[0], query.shape[2], key.shape[2])
    if isinstance(attention_mask, PreparedMask):
        if attention_mask.sizes[1:] != sizes[1:] or attention_mask.sizes[0] not in {1, sizes[0]}:
            raise UnsupportedArgumentError(
                f"attention_mask: expected a mask for [B, Sq, Sk] = {list(sizes)}, got one for "
                f"{list(attention_mask.sizes)}: {type(module).__name__} attends to other keys than "
                "its mask was made for"
            )
        return attention_mask
    everything = PreparedMask(sizes, 0, sizes[2], None, packed=False)
    if attention_mask is None:
        return _unmasked(module, everything, query.device, is_causal, sliding_window)
    if isinstance(attention_mask, Tensor):
        if attention_mask.is_floating_point():
            return everything
        return _with(everything, _of_tensor(attention_mask, query, sizes))
    return _with(everything, as_block_mask(attention_mask))


def _with(mask: PreparedMask, blocks: BlockMask | None) -> PreparedMask:
    return PreparedMask(mask.sizes, mask.start, mask.stop, blocks, mask.packed)


def _unmasked(
    module: torch.nn.Module,
    everything: PreparedMask,
    device: torch.device,
    is_causal: bool | None,
    sliding_window: int | None,
) -> PreparedMask:
    """Return the mask of a layer that got none: causal from the first key on, or everything."""
    batch, q_length, kv_length = everything.sizes
    if sliding_window is not None and kv_length > sliding_window:
        raise UnsupportedArgumentError(
            f"sliding_window: expected a mask that holds it, got none for {kv_length} keys and a "
            f"window of {sliding_window}"
        )
    if q_length == 1:
        return everything
    causal = getattr(module, "is_causal", None) if is_causal is None else is_causal
    if causal is None:
        raise UnsupportedArgumentError(
            f"attention_mask: {type(module).__name__} gives none, and neither it nor its is_causal "
            "says whether queries see the keys after them"
        )
    if not causal:
        return everything
    stop = min(q_length, kv_length)
    blocks = band_blocks(q_length, stop, None, 1, device)
    return PreparedMask((batch, q_length, kv_length), 0, stop, blocks, packed=False)


def _of_tensor(visible: Tensor, query: Tensor, sizes: tuple[int, int, int]) -> BlockMask:
    """Return a boolean tensor as a block mask, made once for all layers that get the tensor."""
    batch, q_length, kv_length = sizes
    heads = query.shape[1]
    allowed = ({1, batch}, {1, heads}, {1, q_length}, {1, kv_length})
    fits = visible.ndim == 4 and all(
        size in wanted for size, wanted in zip(visible.shape, allowed, strict=True)
    )
    if visible.dtype != torch.bool or not fits:
        raise UnsupportedArgumentError(
            f"attention_mask: expected bool or floating point [{batch} or 1, {heads} or 1, "
            f"{q_length} or 1, {kv_length}], got {visible.dtype} {list(visible.shape)}"
        )
    version = version_of(visible)
    kept = None if torch.compiler.is_compiling() else _KEPT.get(visible)
    if kept is not None and kept[:2] == (version, sizes) and version >= 0:
        found: BlockMask = kept[2]
        return found
    dense = visible.expand(-1, -1, q_length, kv_length)
    one_batch, one_head = visible.shape[0] == 1, visible.shape[1] == 1

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return dense[0 if one_batch else b, 0 if one_head else h, q_idx, kv_idx]

    made = create_block_mask(
        mask_mod,
        None if one_batch else batch,
        None if one_head else heads,
        q_length,
        kv_length,
        device=visible.device,
    )
    made = made.without_program()
    if not torch.compiler.is_compiling():
        _KEPT[visible] = (version, sizes, made)
    return made
