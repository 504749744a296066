"""accelerate on models of transformers, small and of random weights."""

from __future__ import annotations

import pytest
import torch
import transformers

from torchyard_kernels import accelerate
from torchyard_kernels.linear._weights.packed_tensor import PackedTensor
from torchyard_kernels.linear._weights.shared_weight import SharedWeight

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 90,
    "pad_token_id": 0,
}
CONFIGS = {
    "llama": (transformers.LlamaConfig, {}),
    "tied llama": (transformers.LlamaConfig, {"tie_word_embeddings": True}),
    "mistral": (transformers.MistralConfig, {"sliding_window": 6}),
    "qwen2": (transformers.Qwen2Config, {}),
    "gemma2": (transformers.Gemma2Config, {"sliding_window": 6}),
    "phi3": (transformers.Phi3Config, {}),
}


def model_of(name, dtype=torch.float32):
    kind, options = CONFIGS[name]
    torch.manual_seed(0)
    config = kind(**SIZES, **options)
    return transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()


PROMPT = torch.arange(1, 15).reshape(2, 7)


def generated(model, **options):
    given = {"attention_mask": torch.ones_like(PROMPT), "do_sample": False, "max_new_tokens": 5}
    with torch.inference_mode():
        return model.generate(PROMPT, **given, **options)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_generates_what_it_did(name):
    model = model_of(name)
    expected = generated(model)
    with torch.inference_mode():
        logits = model(PROMPT).logits
    layers = sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    done = accelerate(model, measure=False)
    assert not done.report.skipped
    assert layers > 0
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert {type(layer.weight) for layer in linears} <= {PackedTensor, SharedWeight}
    with torch.inference_mode():
        torch.testing.assert_close(model(PROMPT).logits, logits, rtol=1e-4, atol=1e-4)
    assert torch.equal(generated(model), expected)
    done.undo()
    assert not model._forward_pre_hooks
    assert torch.equal(generated(model), expected)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_quantised_model_follows_its_reference(weights):
    model = model_of("llama")
    with torch.inference_mode():
        expected = model(PROMPT).logits
        accelerate(model, weights=weights, measure=False)
        found = model(PROMPT).logits
    # Half a scale of each weight: a 254th or a 15th of the largest of its output or group.
    limit = {"int8": 0.03, "int4": 0.35}[weights]
    assert (found - expected).norm() < limit * expected.norm()
    assert not torch.equal(found, expected)


class TestCache:
    """The key-value cache grows in place."""

    def test_appending_moves_nothing_and_earlier_keys_stay(self):
        model = model_of("llama")
        accelerate(model, measure=False)
        token = torch.tensor([[3], [4]])
        with torch.inference_mode():
            cache = model(PROMPT, use_cache=True).past_key_values
            model(token, past_key_values=cache, use_cache=True)
            place, before = cache.layers[0].keys.data_ptr(), cache.layers[0].keys.clone()
            for _ in range(4):
                model(token, past_key_values=cache, use_cache=True)
        keys = cache.layers[0].keys
        assert keys.data_ptr() == place
        assert keys.shape[2] == 12
        assert torch.equal(keys[:, :, :8], before)
        assert type(cache.layers[0]).__name__ == "GrowingLayer"

    def test_beams_and_cropping_give_what_concatenation_does(self):
        model = model_of("llama")
        expected = generated(model, num_beams=3)
        with torch.inference_mode():
            cache = model(PROMPT, use_cache=True).past_key_values
            cache.crop(-3)
            cropped = model(PROMPT[:, 4:], past_key_values=cache, use_cache=True).logits
        accelerate(model, measure=False)
        assert torch.equal(generated(model, num_beams=3), expected)
        with torch.inference_mode():
            cache = model(PROMPT, use_cache=True).past_key_values
            model(PROMPT[:, :2], past_key_values=cache, use_cache=True)
            cache.crop(-5)
            found = model(PROMPT[:, 4:], past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(found, cropped, rtol=1e-4, atol=1e-4)

    def test_many_steps_are_those_of_concatenation(self):
        model = model_of("mistral")
        given = {"min_new_tokens": 300, "max_new_tokens": 300}
        mask = torch.ones_like(PROMPT)
        with torch.inference_mode():
            expected = model.generate(PROMPT, attention_mask=mask, do_sample=False, **given)
            accelerate(model, measure=False)
            found = model.generate(PROMPT, attention_mask=mask, do_sample=False, **given)
        assert torch.equal(found, expected)

    def test_it_stays_with_cache_false(self):
        model = model_of("llama")
        accelerate(model, measure=False, cache=False)
        assert not model._forward_pre_hooks
