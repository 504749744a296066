"""Calls whose prompts are not looked up go to the model as they are, and are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from packages.cache.tests.reuse.models import WINDOWED, decoder, llama, prompt
from torchyard_cache import reuse


def _generate(model: Any, tokens: torch.Tensor, **changes: Any) -> torch.Tensor:
    return model.generate(tokens, max_new_tokens=6, do_sample=False, **changes)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"num_beams": 2}, "num_beams=2"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences=2"),
        ({"use_cache": False}, "use_cache=False"),
        ({"cache_implementation": "static"}, "cache_implementation=static"),
        ({"attention_mask": torch.tensor([[0] * 3 + [1] * 17])}, "padding"),
    ],
)
def test_other_calls_go_to_the_model_and_are_counted(words: dict[str, Any], reason: str) -> None:
    model, tokens = llama(), prompt(20)
    torch.manual_seed(0)
    expected = model.generate(tokens, max_new_tokens=3, **words)
    with reuse(model, page=4) as cache:
        torch.manual_seed(0)
        assert torch.equal(model.generate(tokens, max_new_tokens=3, **words), expected)
        assert dict(cache.stats().bypassed) == {reason: 1}


def test_several_prompts_at_once_go_to_the_model() -> None:
    model, tokens = llama(), torch.cat([prompt(10), prompt(10, 1)])
    with reuse(model) as cache:
        assert _generate(model, tokens).shape == (2, 16)
        assert dict(cache.stats().bypassed) == {"several prompts at once": 1}


def _own_cache(model: Any, tokens: torch.Tensor) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens[:, :10], cache=cache)
    return cache


def _static_cache(model: Any, tokens: torch.Tensor) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=40)


@pytest.mark.parametrize("made", [_own_cache, _static_cache])
@pytest.mark.parametrize("keyword", ["cache", "past_key_values"])
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_a_cache_of_the_callers_is_used(made: Callable[..., Any], keyword: str) -> None:
    model, tokens = llama(), prompt(20)
    expected = _generate(model, tokens)
    with reuse(model, page=4) as cache:
        for _ in range(2):
            found = _generate(model, tokens, **{keyword: made(model, tokens)})
            assert torch.equal(found, expected)
        assert dict(cache.stats().bypassed) == {f"the argument {keyword}": 2}
        assert cache.stats().entries == 0


@pytest.mark.parametrize("name", ["static", "offloaded_static", "quantized"])
@pytest.mark.parametrize("of", ["call", "configuration", "model"])
def test_another_kind_of_cache_is_left_alone_wherever_it_is_asked_for(name: str, of: str) -> None:
    from transformers import GenerationConfig

    model, tokens = decoder("Gemma2", sliding_window=9, **WINDOWED["Gemma2"]), prompt(20)
    words: dict[str, Any] = {}
    if of == "call":
        words["cache_implementation"] = name
    elif of == "configuration":
        words["generation_config"] = GenerationConfig(cache_implementation=name, pad_token_id=0)
    else:
        model.generation_config.cache_implementation = name
    calls: list[dict[str, Any]] = []
    with reuse(model, page=4) as cache:
        # A static cache is compiled on some devices, and a quantised one needs a package.
        cache._generate = lambda *args, **given: calls.append(given)
        _generate(model, tokens, **words)
        assert dict(cache.stats().bypassed) == {f"cache_implementation={name}": 1}
    assert not {"cache", "past_key_values"} & calls[-1].keys()


def test_settings_of_the_models_configuration_count() -> None:
    model, tokens = llama(), prompt(20)
    model.generation_config.num_beams = 3
    expected = _generate(model, tokens)
    with reuse(model, page=4) as cache:
        assert torch.equal(_generate(model, tokens), expected)
        assert torch.equal(
            _generate(model, tokens, num_beams=1), _generate(model, tokens, num_beams=1)
        )
        assert dict(cache.stats().bypassed) == {"num_beams=3": 1}


def test_padding_that_transformers_infers_is_no_beginning_of_what_has_none() -> None:
    model, tokens = llama(), prompt(20)
    # Without a mask, token 0 is padding, which nobody attends to.
    tokens[0, :5] = 0
    ones = torch.ones_like(tokens)
    hidden, seen = _generate(model, tokens), _generate(model, tokens, attention_mask=ones)
    assert not torch.equal(hidden, seen)
    with reuse(model, page=4) as cache:
        for _ in range(2):
            assert torch.equal(_generate(model, tokens), hidden)
            assert torch.equal(_generate(model, tokens, attention_mask=ones), seen)
        assert dict(cache.stats().bypassed) == {"padding": 2}
        assert cache.stats().hits == 1


def test_a_model_in_training_is_left_alone() -> None:
    model, tokens = llama(attention_dropout=0.5), prompt(20)
    expected = _generate(model, tokens)
    with reuse(model.train(), page=4) as cache:
        assert model.training
        _generate(model, tokens)
        assert dict(cache.stats().bypassed) == {"training": 1}
        model.eval()
        assert torch.equal(_generate(model, tokens), expected)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 8.0},
        {
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "short_factor": [1.0] * 4,
            "long_factor": [9.0] * 4,
            "original_max_position_embeddings": 32,
        },
    ],
    ids=["dynamic", "longrope"],
)
def test_frequencies_that_depend_on_the_length_are_not_mixed(rope: dict[str, Any]) -> None:
    sizes = {"max_position_embeddings": 32, "rope_parameters": rope}
    system = prompt(28)
    prompts = [torch.cat([system, prompt(n, n)], dim=1) for n in (1, 2, 12, 2, 30, 3)]
    # What a model computes may depend on its calls before.
    plain = [_generate(model, tokens) for model in [llama(**sizes)] for tokens in prompts]
    model = llama(**sizes)
    with reuse(model, page=4) as cache:
        assert all(map(torch.equal, plain, [_generate(model, tokens) for tokens in prompts]))
        reason = "rotary frequencies that depend on the prompt's length"
        assert dict(cache.stats().bypassed) == {reason: 2}
        assert cache.stats().tokens_reused == 3 * 28
