"""A small PagedKVCache, and what its attention is held against."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_attention import PagedKVCache, create_block_mask, flex_attention

HEADS, KV_HEADS, DIM, VALUE_DIM = 4, 2, 16, 24


def tokens(count: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(count, KV_HEADS, DIM).to(dtype),
        torch.randn(count, KV_HEADS, VALUE_DIM).to(dtype),
    )


def empty_cache(pages: int = 64, page_size: int = 16, **how: Any) -> PagedKVCache:
    sizes: dict[str, Any] = {"kv_heads": KV_HEADS, "head_dim": DIM, "value_dim": VALUE_DIM}
    return PagedKVCache(pages, page_size, **(sizes | how))


def filled(*lengths: int, page_size: int = 16) -> tuple[PagedKVCache, list[int]]:
    torch.manual_seed(0)
    cache = empty_cache(64 * 16 // page_size, page_size)
    sequences = [cache.open() for _ in lengths]
    cache.append(sequences, *tokens(sum(lengths)), counts=lengths)
    return cache, sequences


def contiguous(cache: PagedKVCache, sequence: int, query: Tensor, **how: Any) -> Any:
    """Attend query [T, Hq, D], a sequence's last positions, over its keys laid side by side."""
    key, value = cache.keys_and_values(sequence)
    count, past = query.shape[0], cache.length(sequence) - query.shape[0]
    mask_mod, score_mod = how.pop("mask_mod", None), how.pop("score_mod", None)

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        shown = k <= q + past
        return shown if mask_mod is None else shown & mask_mod(b, h, q + past, k)

    def moved(s: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Any:
        return score_mod(s, b, h, q + past, k)

    mask = create_block_mask(seen, None, HEADS, count, past + count, device="cpu")
    out = flex_attention(
        query.transpose(0, 1)[None],
        key[None],
        value[None],
        None if score_mod is None else moved,
        mask,
        enable_gqa=True,
        **how,
    )
    return out[0].transpose(0, 1)


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
