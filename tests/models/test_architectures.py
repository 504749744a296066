"""Models that are more than a stack of causal layers, and training."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from tests.models.architectures import Outcome, architectures, compare
from tests.models.families import FAMILIES, WINDOW, Family, largest, text
from torchyard_attention.transformers import (
    UnsupportedArgumentError,
    register,
)

LENGTH, BATCH = 150, 3
TOKENS = text(BATCH, LENGTH)
# Padding before, after and, in the last row, in the middle.
LISTED = torch.ones_like(TOKENS)
LISTED[0, :9], LISTED[1, 130:], LISTED[2, 20:31] = 0, 0, 0

_SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def _pair(config: Any, kind: Any) -> tuple[Any, Any]:
    """Return the same model with this attention and with eager's."""
    models = []
    for attention in ("torchyard", "eager"):
        torch.manual_seed(2)
        # from_config writes the attention into the configuration that it is given.
        model = kind.from_config(copy.deepcopy(config), attn_implementation=attention)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.2)
        models.append(model.eval())
    return models[0], models[1]


def _agree(models: tuple[Any, Any], where: Tensor | None, output: str, **inputs: Any) -> None:
    """Compare an output; roundings as in test_logits."""
    with torch.no_grad():
        found, wanted = (getattr(model(**inputs), output) for model in models)
    bound = 128 * torch.finfo(torch.float32).eps * float(wanted.abs().max())
    assert largest(found, wanted, None if where is None else where.bool()) <= bound


def test_an_encoder_sees_both_ways_and_no_padding() -> None:
    models = _pair(transformers.BertConfig(**_SIZES), transformers.AutoModel)
    _agree(models, None, "last_hidden_state", input_ids=TOKENS)
    _agree(models, LISTED, "last_hidden_state", input_ids=TOKENS, attention_mask=LISTED)


def test_an_encoder_with_windows_to_both_sides() -> None:
    config = transformers.ModernBertConfig(
        **{**_SIZES, "num_hidden_layers": 3},
        local_attention=20,
        cls_token_id=1,
        sep_token_id=2,
    )
    models = _pair(config, transformers.AutoModel)
    _agree(models, LISTED, "last_hidden_state", input_ids=TOKENS, attention_mask=LISTED)


def test_an_encoder_without_any_mask() -> None:
    config = transformers.ViTConfig(**{**_SIZES, "image_size": 32, "patch_size": 4})
    pixels = torch.linspace(-1.0, 1.0, 2 * 3 * 32 * 32).view(2, 3, 32, 32)
    _agree(_pair(config, transformers.AutoModel), None, "last_hidden_state", pixel_values=pixels)


def test_a_causal_encoder_that_says_so_by_its_call() -> None:
    config = transformers.CLIPTextConfig(
        **{**_SIZES, "eos_token_id": 255}, projection_dim=32, max_position_embeddings=LENGTH
    )
    models = _pair(config, transformers.AutoModel)
    _agree(models, None, "last_hidden_state", input_ids=TOKENS)


def test_cross_attention() -> None:
    config = transformers.BartConfig(
        vocab_size=256,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
    )
    models = _pair(config, transformers.AutoModel)
    inputs = {"input_ids": TOKENS, "attention_mask": LISTED, "decoder_input_ids": TOKENS[:, :37]}
    _agree(models, None, "last_hidden_state", **inputs)


def test_cross_attention_and_a_position_bias_in_generate() -> None:
    config = transformers.MT5Config(
        vocab_size=256,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        pad_token_id=0,
        decoder_start_token_id=0,
    )
    models = _pair(config, transformers.AutoModelForSeq2SeqLM)
    made = [
        model.generate(
            TOKENS,
            attention_mask=LISTED,
            max_new_tokens=8,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for model in models
    ]
    assert torch.equal(made[0].sequences, made[1].sequences)
    for found, wanted in zip(made[0].logits, made[1].logits, strict=True):
        assert largest(found, wanted) <= 128 * torch.finfo(torch.float32).eps * float(
            wanted.abs().max()
        )


def test_chunks_begin_where_padding_ends() -> None:
    config = transformers.Llama4TextConfig(
        **{**_SIZES, "num_hidden_layers": 4},
        num_key_value_heads=2,
        head_dim=16,
        attention_chunk_size=WINDOW,
        intermediate_size_mlp=96,
        num_local_experts=1,
    )
    models = _pair(config, transformers.AutoModelForCausalLM)
    listed = LISTED.clone()
    listed[2] = 1
    _agree(models, listed, "logits", input_ids=TOKENS, attention_mask=listed)


def _gradients(model: Any, tokens: Tensor, **inputs: Any) -> dict[str, Tensor]:
    model(input_ids=tokens, **inputs).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def _same_gradients(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        bound = 128 * torch.finfo(torch.float32).eps * float(gradient.abs().max())
        assert largest(found[name], gradient) <= bound, name


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_gradients_are_those_of_eager(family: Family) -> None:
    # The token after padding is no label: its query is padding, and sees no key.
    labels = TOKENS.masked_fill(LISTED == 0, -100)
    labels[0, 9] = -100
    inputs = {"attention_mask": LISTED, "labels": labels, "use_cache": False}
    ours, eager = (
        _gradients(family.model(attention).train(), TOKENS, **inputs)
        for attention in ("torchyard", "eager")
    )
    _same_gradients(ours, eager)


def test_gradients_with_checkpointing_are_those_without() -> None:
    inputs = {"attention_mask": LISTED, "labels": TOKENS, "use_cache": False}
    model = FAMILIES["Gemma2"].model("torchyard").train()
    plain = _gradients(model, TOKENS, **inputs)
    checkpointed = FAMILIES["Gemma2"].model("torchyard").train()
    checkpointed.activation_checkpointing_enable()
    _same_gradients(_gradients(checkpointed, TOKENS, **inputs), plain)


def test_autocast_casts_as_for_torchs_own_attention() -> None:
    ours, sdpa = (FAMILIES["Llama"].model(name) for name in ("torchyard", "sdpa"))
    with torch.no_grad():
        exact = sdpa(TOKENS).logits
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, rough = ours(TOKENS).logits, sdpa(TOKENS).logits
    assert largest(found, exact) <= 2 * largest(rough, exact)


def test_what_inference_mode_leaves_behind_can_be_trained_with() -> None:
    model = FAMILIES["Mistral"].model("torchyard")
    with torch.inference_mode():
        model(TOKENS)
    model(TOKENS, labels=TOKENS).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_in_training_follows_the_seed_and_outside_of_it_is_none() -> None:
    config = transformers.BertConfig(**_SIZES, attention_probs_dropout_prob=0.1)
    model, eager = _pair(config, transformers.AutoModel)
    _agree((model, eager), None, "last_hidden_state", input_ids=TOKENS)
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        with torch.no_grad():
            outputs.append(model.train()(input_ids=TOKENS).last_hidden_state)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_attention_weights_are_refused() -> None:
    model = FAMILIES["Llama"].model("torchyard")
    with pytest.raises(UnsupportedArgumentError, match="output_attentions: expected False"):
        model(TOKENS, output_attentions=True)


def test_packed_sequences_that_the_mask_does_not_know_are_refused() -> None:
    model = FAMILIES["GptOss"].model("torchyard")
    ends = torch.tensor([0, 50, LENGTH], dtype=torch.int32)
    with pytest.raises(UnsupportedArgumentError, match="cu_seq_lens_q: says that several"):
        model(TOKENS[:1], cu_seq_lens_q=ends, cu_seq_lens_k=ends)


def test_a_model_that_chooses_keys_itself_is_refused() -> None:
    config = transformers.DeepseekV32Config(
        **{**_SIZES, "num_hidden_layers": 1},
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=16,
        index_topk=4,
        index_head_dim=16,
        index_n_heads=2,
        n_routed_experts=2,
        num_experts_per_tok=1,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        max_position_embeddings=512,
    )
    model, _ = _pair(config, transformers.AutoModelForCausalLM)
    with pytest.raises(UnsupportedArgumentError, match="the model takes a part of it"):
        model(TOKENS)


def test_a_model_that_would_leave_the_mask_out_is_refused() -> None:
    config = transformers.DogeConfig(**_SIZES, num_key_value_heads=2)
    model, _ = _pair(config, transformers.AutoModelForCausalLM)
    with pytest.raises(UnsupportedArgumentError, match="models of type doge leave a block mask"):
        model(TOKENS)


@pytest.mark.parametrize("name", ["Falcon", "Git", "Bloom", "Mpt"])
def test_a_model_that_cannot_take_the_interface_is_refused_while_it_is_built(name: str) -> None:
    model = getattr(transformers, f"{name}Model")
    result = compare(model.__name__, "torchyard")
    assert result.outcome is Outcome.REFUSED
    assert result.detail.startswith(f"attn_implementation: {name}")


def test_a_model_that_asks_its_mask_for_what_a_tensor_has_is_refused_by_name() -> None:
    result = compare("LasrEncoder", "torchyard")
    assert result.outcome is Outcome.REFUSED
    assert result.detail.startswith("attention_mask: the model asks for its dtype")


@pytest.mark.parametrize("name", ["DebertaModel", "XLNetModel", "WavLMModel"])
def test_a_model_that_never_calls_the_interface_says_so(name: str) -> None:
    # It warns once for each name.
    register(f"torchyard-{name.lower()}")
    result = compare(name, f"torchyard-{name.lower()}")
    assert result.outcome is Outcome.TOLD
    assert f"{name} computes attention itself and never calls" in result.detail


@pytest.mark.parametrize("name", ["token_type_ids", "mm_token_type_ids", "special_tokens_mask"])
def test_inputs_that_no_attention_reads_are_ignored(name: str) -> None:
    model = FAMILIES["Llama"].model("torchyard")
    with torch.no_grad():
        assert torch.equal(
            model(TOKENS, **{name: torch.zeros_like(TOKENS)}).logits, model(TOKENS).logits
        )


def test_an_input_that_may_say_what_is_seen_is_refused() -> None:
    model = FAMILIES["Llama"].model("torchyard")
    with pytest.raises(UnsupportedArgumentError, match="global_attention_mask: LlamaAttention"):
        model(TOKENS, global_attention_mask=torch.ones_like(TOKENS))


@pytest.mark.sweep
def test_no_architecture_is_wrong_or_ends_in_an_unclear_error() -> None:
    found = Counter[Outcome]()
    for kind, name in architectures():
        result = compare(name, "torchyard")
        found[result.outcome] += 1
        print(f"{kind}: {name}: {result.outcome}: {result.detail}")
    print(dict(found))
    assert found[Outcome.RIGHT] > 260
    assert not {Outcome.WRONG, Outcome.UNCLEAR, Outcome.SILENT} & found.keys()


def test_a_causal_architecture_that_is_configured_to_see_both_ways() -> None:
    config = transformers.LlamaConfig(**_SIZES, num_key_value_heads=2)
    config.is_causal = False
    models = _pair(config, transformers.AutoModel)
    inputs = {"input_ids": TOKENS, "use_cache": False}
    _agree(models, LISTED, "last_hidden_state", attention_mask=LISTED, **inputs)
    _agree(models, None, "last_hidden_state", **inputs)


def test_a_static_cache_longer_than_the_prompt_is_not_read_beyond_it() -> None:
    model = FAMILIES["Llama"].model("torchyard")
    cache = transformers.StaticCache(config=model.config, max_cache_len=2 * LENGTH)
    with torch.no_grad():
        first = model(TOKENS[:, :100], past_key_values=cache).logits
        for layer in cache.layers:
            layer.keys[:, :, 100:] = torch.nan
            layer.values[:, :, 100:] = torch.nan
        second = model(TOKENS[:, 100:], past_key_values=cache).logits
        whole = model(TOKENS, use_cache=False).logits
    bound = 128 * torch.finfo(torch.float32).eps * float(whole.abs().max())
    assert largest(torch.cat([first, second], dim=1), whole) <= bound
