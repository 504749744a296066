"""Small models of transformers with random weights."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["encoder", "llama", "prompt"]


def llama(seed: int = 0, **changes: Any) -> Any:
    """Return a decoder with full attention in every layer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).eval()


def encoder(seed: int = 0) -> Any:
    """Return an encoder of texts."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    return BertModel(config).eval()


def prompt(length: int, seed: int = 0) -> torch.Tensor:
    """Return token ids [1, length]."""
    return torch.randint(1, 97, (1, length), generator=torch.Generator().manual_seed(seed))
