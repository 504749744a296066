"""The shape of the model of benchmarks.language, and what its contestants do with it."""

from __future__ import annotations

from typing import Final

__all__ = ["CHECKED", "SHAPE", "STEPS"]

# A Llama of a billion parameters.
SHAPE: Final = {
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 8192,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
# Tokens that are decoded at most.
STEPS: Final = 64
# Tokens whose logits are compared.
CHECKED: Final = 16
