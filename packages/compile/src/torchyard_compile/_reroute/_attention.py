"""``torch.nn.functional.scaled_dot_product_attention`` by ``torchyard_attention``."""

from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_compile._choice import LeftAlone
from torchyard_compile._reroute._call import Rerouting, check_plain
from torchyard_compile.torch_compat import version_of

__all__ = ["attention"]

# Layers of a model are given one mask: the last one's blocks are kept while it lives, unchanged.
_LAST: list[tuple[weakref.ref[Tensor], Any, Any]] = []


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Rerouting:
    """Return how a call is computed; arguments as of torch's function.

    Raises:
        LeftAlone: the op of ours computes something else.
    """
    check_plain(query, key, value, attn_mask)
    if dropout_p:
        raise LeftAlone("dropout_p: torch draws other weights to drop")
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise LeftAlone(f"expected [B, H, S, D], got {query.ndim} dimensions")
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        raise LeftAlone("batch sizes differ, which torch broadcasts")
    if attn_mask is not None and is_causal:
        raise LeftAlone("attn_mask and is_causal together")
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise LeftAlone("attn_mask: a mask that is added, which is no block mask")
    if attn_mask is not None and attn_mask.requires_grad:
        raise LeftAlone("attn_mask: its gradient is wanted")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise LeftAlone("numbers of heads differ without enable_gqa")
    from torchyard_attention import explain, flex_attention

    sizes = tuple((tuple(t.shape), t.dtype, t.stride(-1) == 1) for t in (query, key, value))
    grad = torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    )
    mask = None if attn_mask is None else tuple(attn_mask.shape)
    form = ("attention", query.device.type, sizes, mask, is_causal, scale, enable_gqa, grad)

    def arguments() -> dict[str, Any]:
        rows, keys, device = query.shape[2], key.shape[2], query.device
        blocks = None
        if is_causal and rows > 1:
            blocks = _causal(rows, keys, device)
        elif is_causal:
            # Its one row sees the first key alone, as torch aligns the mask.
            raise LeftAlone("is_causal: one row sees the first key alone")
        if attn_mask is not None:
            blocks = _blocks(attn_mask, query, keys)
        return {"block_mask": blocks, "scale": scale, "enable_gqa": enable_gqa}

    return Rerouting(
        form,
        lambda: explain(query, key, value, **arguments()),
        lambda: flex_attention(query, key, value, **arguments()),
    )


@lru_cache(maxsize=64)
def _causal(rows: int, keys: int, device: torch.device) -> Any:
    from torchyard_attention import create_block_mask, masks

    return create_block_mask(masks.causal, None, None, rows, keys, device=device)


def _blocks(mask: Tensor, query: Tensor, keys: int) -> Any:
    """Return a mask [..., Sq, Sk] that broadcasts to [B, H, Sq, Sk] as blocks."""
    version = version_of(mask)
    key = (version, tuple(query.shape[:3]), keys)
    # Read once: another thread may keep another mask meanwhile.
    for last, last_key, blocks in tuple(_LAST):
        if last() is mask and last_key == key:
            return blocks
    from torchyard_attention import create_block_mask

    batch, heads, rows = query.shape[:3]
    seen = mask[(None,) * (4 - mask.ndim)].expand(-1, -1, rows, keys)
    if seen.shape[0] not in (1, batch) or seen.shape[1] not in (1, heads):
        raise LeftAlone(f"attn_mask: {list(mask.shape)} broadcasts to no [B, H, Sq, Sk]")
    of_batch, of_head = seen.shape[0] > 1, seen.shape[1] > 1

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return seen[b if of_batch else 0, h if of_head else 0, q_idx, kv_idx]

    found = create_block_mask(
        mask_mod,
        batch if of_batch else None,
        heads if of_head else None,
        rows,
        keys,
        device=mask.device,
    )
    # Nothing counts the writes to a tensor of inference mode.
    _LAST[:] = [] if version < 0 else [(weakref.ref(mask), key, found)]
    return found
