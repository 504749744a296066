"""Layers with a window are after a beginning what they would be without reuse."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import WINDOWED, decoder, prompt
from torchyard_cache import reuse
from torchyard_cache._reuse._recording import RecordingCache

_WORDS = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}


def _windowed(name: str, window: int) -> Any:
    size = "attention_chunk_size" if name == "Llama4Text" else "sliding_window"
    return decoder(name, **{size: window}, **WINDOWED[name])


def _generated(model: Any, tokens: torch.Tensor) -> Any:
    return model.generate(tokens, max_new_tokens=8, **_WORDS)


def _spread(model: Any, tokens: torch.Tensor, logits: torch.Tensor) -> float:
    """Return the largest error of float32, against float64."""
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(tokens, use_cache=False).logits[:, -1]
    return float((logits - exact).abs().max())


# Shorter and longer than all prompts, no multiple of the page, and one.
@pytest.mark.parametrize("window", [5, 16, 100])
@pytest.mark.parametrize("name", [name for name in WINDOWED if name != "GptOss"])
def test_prompts_that_begin_alike_give_their_tokens_and_logits(name: str, window: int) -> None:
    model, system = _windowed(name, window), prompt(40)
    prompts = [torch.cat([system[:, :n], prompt(n % 7 + 1, n)], dim=1) for n in (40, 40, 24, 38, 9)]
    plain = [_generated(model, tokens) for tokens in prompts]
    with reuse(model, page=8) as cache:
        found = [_generated(model, tokens) for tokens in prompts]
        assert cache.stats().tokens_reused == 40 + 24 + 32 + 8
    for tokens, one, other in zip(prompts, found, plain, strict=True):
        assert torch.equal(one.sequences, other.sequences)
        # A few times what a rounding makes of them anyway.
        bound = 16 * max(_spread(model, tokens, other.logits[0]), 1e-6)
        for logits, wanted in zip(one.logits, other.logits, strict=True):
            assert float((logits - wanted).abs().max()) <= bound


def test_experts_and_sinks_beside_a_window() -> None:
    model, system = _windowed("GptOss", 13), prompt(40)
    prompts = [torch.cat([system, prompt(5, seed)], dim=1) for seed in range(3)]
    plain = [_generated(model, tokens).sequences for tokens in prompts]
    with reuse(model, page=8) as cache:
        assert all(map(torch.equal, plain, [_generated(model, p).sequences for p in prompts]))
        assert cache.stats().tokens_reused == 80


@pytest.mark.sweep
@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    page=st.integers(1, 16),
    window=st.integers(2, 40),
)
def test_any_window_page_and_prompts(lengths: list[int], page: int, window: int) -> None:
    model, whole = _windowed("Qwen2", window), prompt(64)
    prompts = [torch.cat([whole[:, : 2 * n], prompt(n % 5 + 1, n)], dim=1) for n in lengths]
    plain = [_generated(model, tokens).sequences for tokens in prompts]
    with reuse(model, page=page):
        assert all(map(torch.equal, plain, [_generated(model, p).sequences for p in prompts]))


def test_the_turns_of_a_chat_are_found() -> None:
    model = _windowed("Gemma3Text", 11)

    def chat() -> torch.Tensor:
        said = prompt(12)
        for turn in range(5):
            said = torch.cat([_generated(model, said).sequences, prompt(3, turn)], dim=1)
        return said

    plain = chat()
    with reuse(model, page=4) as cache:
        assert torch.equal(chat(), plain)
        assert cache.stats().hits == 4
        # Of what was generated, too.
        assert cache.stats().tokens_reused >= 16 + 28 + 40 + 48


@pytest.mark.parametrize("window", [5, 16, 100])
def test_a_restored_layer_is_what_transformers_own_is(window: int) -> None:
    from transformers import DynamicCache

    model, tokens = _windowed("Qwen2", window), prompt(24)
    own, recorded = DynamicCache(config=model.config), RecordingCache(model.config)
    with torch.no_grad():
        for cache in (own, recorded):
            # In pieces, so that a layer drops tokens in between.
            for part in tokens.split(7, dim=1):
                model(part, cache=cache)
    again = RecordingCache.restored(model.config, list(recorded.pages(0, 3, 8)), 8, {})
    for one, other in zip(again.layers, own.layers, strict=True):
        assert torch.equal(one.keys, other.keys)
        assert torch.equal(one.values, other.values)
        assert one.get_seq_length() == other.get_seq_length() == 24
        assert one.get_mask_sizes(3) == other.get_mask_sizes(3)


def test_changing_the_cache_of_a_call_changes_no_page() -> None:
    model, tokens = _windowed("Mistral", 9), prompt(30)
    plain = _generated(model, tokens).sequences
    with reuse(model, page=4):
        for _ in range(3):
            result = _generated(model, tokens)
            assert torch.equal(result.sequences, plain)
            for layer in result.past_key_values.layers:
                layer.keys.zero_()
