"""Small models of transformers with random weights."""

from __future__ import annotations

from typing import Any, Final

import torch

__all__ = ["STATEFUL", "WINDOWED", "decoder", "encoder", "llama", "prompt"]

_SIZES: Final = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_MIXED: Final = ["sliding_attention", "full_attention"]

# Name of an architecture -> what its configuration says besides the sizes; the window is added.
WINDOWED: Final[dict[str, dict[str, Any]]] = {
    "Mistral": {},
    "Gemma2": {"head_dim": 8, "query_pre_attn_scalar": 8},
    "Gemma3Text": {"head_dim": 8, "query_pre_attn_scalar": 8, "layer_types": _MIXED},
    "Qwen2": {"use_sliding_window": True, "layer_types": _MIXED},
    "Cohere2": {"layer_types": _MIXED},
    "GptOss": {
        "head_dim": 8,
        "num_local_experts": 2,
        "num_experts_per_tok": 2,
        "layer_types": _MIXED,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "Llama4Text": {
        "head_dim": 8,
        "intermediate_size_mlp": 64,
        "num_local_experts": 1,
        "layer_types": ["chunked_attention", "full_attention"],
    },
}

_SMALL_MAMBA2: Final = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_chunk_size": 8,
}
_DELTA: Final = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}

# Of models with states: some keep nothing else, some have layers of both kinds, or layers that are.
STATEFUL: Final[dict[str, dict[str, Any]]] = {
    "Mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 1, "chunk_size": 8},
    "Bamba": {**_SMALL_MAMBA2, "attn_layer_indices": [1]},
    "FalconH1": {**_SMALL_MAMBA2, "mamba_d_ssm": 64, "head_dim": 8},
    "GraniteMoeHybrid": {
        **_SMALL_MAMBA2,
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 64,
    },
    "Qwen3Next": {
        **_DELTA,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        "num_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "Lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "OlmoHybrid": {**_DELTA, "layer_types": ["linear_attention", "full_attention"]},
}


def decoder(name: str, seed: int = 0, **options: Any) -> Any:
    """Return a decoder, with weights so large that what is attended to changes its tokens.

    Args:
        name: of the configuration's class, without its ending.
        seed: of the weights.
        options: of the configuration, besides the sizes.
    """
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**{**_SIZES, **options})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return model.eval()


def llama(seed: int = 0, **changes: Any) -> Any:
    """Return a decoder with full attention in every layer."""
    return decoder("Llama", seed, **changes)


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
    return torch.randint(2, 97, (1, length), generator=torch.Generator().manual_seed(seed))
