"""The model of random weights that prompts are given to, and prompts."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.prefix_reuse.contestants import ANSWER

__all__ = ["answers_equal", "random_model", "random_tokens"]


def random_model() -> Any:
    """Return a Llama-shaped model of 8 layers and 512 units."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings: Any = LlamaConfig
    build: Any = LlamaForCausalLM
    config = settings(
        vocab_size=2000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        eos_token_id=None,
        pad_token_id=0,
        max_position_embeddings=8192,
    )
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                # Wide enough that an answer depends on all of its prompt.
                parameter.normal_(std=0.08)
    return model


def answers_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether answers are equal; prompts of later turns have other answers in them."""
    return torch.equal(one[:, -ANSWER:], other[:, -ANSWER:])


def random_tokens(count: int, seed: int) -> torch.Tensor:
    """Return token ids: int64 [1, count]."""
    return torch.randint(1, 2000, (1, count), generator=torch.Generator().manual_seed(seed))
