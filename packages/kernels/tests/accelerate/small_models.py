"""Small models of transformers, of random weights, and what they compute."""

from __future__ import annotations

import torch
import transformers
from transformers import AutoModelForCausalLM

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 96,
    "pad_token_id": 0,
    "initializer_range": 0.2,
}
GPT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 96,
    "initializer_range": 0.2,
}


def _config(kind, *names, **options):
    given = {**SIZES, **options}
    return lambda: getattr(transformers, kind)(**{k: v for k, v in given.items() if k not in names})


ARCHITECTURES = {
    "llama": _config("LlamaConfig"),
    "tied llama": _config("LlamaConfig", tie_word_embeddings=True),
    "mistral": _config("MistralConfig", sliding_window=None),
    "qwen2": _config("Qwen2Config"),
    "qwen3": _config("Qwen3Config", head_dim=32),
    "gemma2": _config("Gemma2Config", head_dim=32, sliding_window=6),
    "phi3": _config("Phi3Config"),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=2, vocab_size=96, initializer_range=0.2
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**GPT, intermediate_size=128),
    "opt": lambda: transformers.OPTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=128,
        vocab_size=96,
        word_embed_proj_dim=64,
        init_std=0.2,
    ),
    "bert": lambda: transformers.BertConfig(**GPT, intermediate_size=128),
    "t5": lambda: transformers.T5Config(
        d_model=64, d_kv=32, d_ff=128, num_layers=2, num_heads=2, vocab_size=96
    ),
    "mixtral": _config("MixtralConfig", num_local_experts=4, sliding_window=None),
    "falcon": lambda: transformers.FalconConfig(
        **GPT, multi_query=True, parallel_attn=True, bias=False, alibi=False
    ),
}
TOKENS = torch.arange(1, 13).reshape(1, 12)


def build(name, seed=0):
    torch.manual_seed(seed)
    config = ARCHITECTURES[name]()
    if name == "bert":
        model = transformers.BertForMaskedLM(config)
    elif name == "t5":
        model = transformers.T5ForConditionalGeneration(config)
    else:
        model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def outputs(model, tokens=TOKENS):
    """Logits of a prompt, and where there is a cache of two tokens that are decoded behind it."""
    given = {}
    config = getattr(model, "config", None) or model.module.config
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = tokens[:, :5]
    with torch.no_grad():
        found = [model(tokens, **given).logits]
        plain = type(config).__name__ not in ("BertConfig", "T5Config")
        if plain:
            out = model(tokens[:, :8], use_cache=True)
            for place in (8, 9):
                cache = out.past_key_values
                out = model(tokens[:, place : place + 1], past_key_values=cache, use_cache=True)
                found.append(out.logits)
    with torch.enable_grad():
        found.append(model(tokens, **given).logits.detach())
    return torch.cat([one.flatten() for one in found]).float()
