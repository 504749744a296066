"""Models that are compiled, and a call of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from benchmarks.models.embedding import embed, load, sources, tokens

__all__ = ["MODELS"]


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings: Any = LlamaConfig
    config = settings(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    build: Any = LlamaForCausalLM
    made: Any = torch.compile(build(config).eval())
    with torch.no_grad():
        return made(torch.arange(64)[None], use_cache=False).logits


def _minilm() -> Any:
    model: Any = torch.compile(load("sdpa"))
    return embed(model, tokens(sources(4)))


def _masks() -> Any:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 256, 64) for _ in range(3))
    attention = torch.compile(flex_attention)
    masks = (
        lambda b, h, q, k: q >= k,
        lambda b, h, q, k: (q >= k) & (q - k < 64),
        lambda b, h, q, k: (q >= k) | (k < 32),
        lambda b, h, q, k: q // 64 == k // 64,
        lambda b, h, q, k: (q - k).abs() < 48,
    )
    out = []
    for mask in masks:
        block_mask = create_block_mask(mask, None, None, 256, 256, device="cpu")
        out.append(attention(query, key, value, block_mask=block_mask))
    return torch.stack(out)


# Name -> makes, compiles and calls a model; returns what it gave.
MODELS: Final[dict[str, Callable[[], Any]]] = {
    "llama": _llama,
    "MiniLM": _minilm,
    "flex_attention, five masks": _masks,
}
