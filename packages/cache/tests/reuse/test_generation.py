"""Prompts that begin alike give the tokens that they give without a cache."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import CacheError, DiskTier, reuse
from torchyard_cache._cli import command

_PAGE = 8


def _joined(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, dim=1)


def _generate(model: Any, tokens: torch.Tensor, **changes: Any) -> torch.Tensor:
    return model.generate(tokens, max_new_tokens=6, do_sample=False, **changes)


def test_a_shared_beginning_is_computed_once() -> None:
    model, system = llama(), prompt(40)
    prompts = [_joined(system, prompt(5, seed)) for seed in range(1, 6)]
    expected = [_generate(model, tokens) for tokens in prompts]
    with reuse(model, page=_PAGE) as cache:
        found = [_generate(model, tokens) for tokens in prompts]
        stats = cache.stats()
    assert all(map(torch.equal, expected, found))
    assert (stats.calls, stats.hits) == (5, 4)
    assert stats.tokens_reused == 4 * 40
    assert stats.tokens_computed == 5 * 45 - 160
    assert stats.seconds_saved > 0


@pytest.mark.sweep
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    page=st.integers(1, 16),
    seed=st.integers(0, 3),
)
def test_any_prompts_that_share_beginnings_give_their_tokens(
    lengths: list[int], page: int, seed: int
) -> None:
    model, whole = llama(), prompt(64, seed)
    prompts = [_joined(whole[:, : 2 * n], prompt(n % 5 + 1, n)) for n in lengths]
    with reuse(model, page=page):
        found = [_generate(model, tokens) for tokens in prompts]
    assert all(torch.equal(_generate(model, p), f) for p, f in zip(prompts, found, strict=True))


def test_the_turns_of_a_chat_are_found() -> None:
    model = llama()
    with reuse(model, page=4) as cache:
        said = prompt(12)
        for turn in range(4):
            answer = _generate(model, said)
            said = _joined(answer, prompt(3, turn))
        stats = cache.stats()
    plain = prompt(12)
    for turn in range(4):
        plain = _joined(_generate(model, plain), prompt(3, turn))
    assert torch.equal(said, plain)
    assert stats.hits == 3
    # Of what was generated, too.
    assert stats.tokens_reused > 12 + 20 + 28


def test_the_same_prompt_again_leaves_a_token_to_compute() -> None:
    model, tokens = llama(), prompt(16)
    expected = _generate(model, tokens)
    with reuse(model, page=_PAGE) as cache:
        assert torch.equal(_generate(model, tokens), expected)
        assert torch.equal(_generate(model, tokens), expected)
        assert cache.stats().tokens_reused == 8


def test_logits_and_dictionaries_are_as_without_it() -> None:
    model, tokens = llama(), prompt(20)
    words = {"return_dict_in_generate": True, "output_logits": True}
    plain = _generate(model, tokens, **words)
    with reuse(model, page=4):
        _generate(model, tokens)
        found = _generate(model, tokens, **words)
    assert torch.equal(plain.sequences, found.sequences)
    for one, other in zip(plain.logits, found.logits, strict=True):
        torch.testing.assert_close(one, other)


def test_the_model_is_left_as_it_was() -> None:
    model = llama()
    before = set(vars(model))
    with reuse(model):
        _generate(model, prompt(10))
    assert set(vars(model)) == before
    mine: Any = model.generate
    model.generate = mine
    with reuse(model), pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError
    assert vars(model)["generate"] is mine


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.lm_head.weight.mul_(2.0),
        lambda model: model.load_state_dict(llama(seed=5).state_dict()),
        lambda model: setattr(
            model.model.layers[0].mlp.up_proj,
            "weight",
            torch.nn.Parameter(torch.zeros_like(model.model.layers[0].mlp.up_proj.weight)),
        ),
    ],
)
def test_changed_weights_are_another_model(change: Any) -> None:
    model, tokens = llama(), prompt(20)
    with reuse(model, page=4) as cache:
        _generate(model, tokens)
        with torch.no_grad():
            change(model)
        found = _generate(model, tokens)
        assert cache.stats().hits == 0
    assert torch.equal(found, _generate(model, tokens))


def test_weights_that_were_written_to_unseen_are_noticed_after_clear() -> None:
    model, tokens = llama(), prompt(20)
    with reuse(model, page=4) as cache:
        _generate(model, tokens)
        model.lm_head.weight.data.mul_(-1.0)
        cache.clear()
        found = _generate(model, tokens)
    assert torch.equal(found, _generate(model, tokens))


def test_counts_are_text_of_prometheus() -> None:
    model = llama()
    with reuse(model, page=4) as cache:
        _generate(model, prompt(20))
        text = cache.stats().to_prometheus()
    assert "torchyard_cache_calls 1.0" in text
    assert 'torchyard_cache_tenants{what="all"} 0.0' in text


def test_the_command_shows_what_a_process_saved() -> None:
    model = llama()
    with reuse(model, page=4):
        for _ in range(2):
            _generate(model, prompt(20))
    result = CliRunner().invoke(command, ["top", "--json"])
    (row,) = json.loads(result.output)
    assert (row["name"], row["calls"], row["hits"]) == ("reuse", 2, 1)
    assert "reuse" in CliRunner().invoke(command, ["top", "--once"]).output


def test_tenants_find_nothing_of_one_another(tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)
    tier = DiskTier(tmp_path / "pages", 1 << 20)
    with reuse(model, page=4, tenant="a", tiers=[tier]):
        _generate(model, tokens)
    with reuse(model, page=4, tenant="b", tiers=[tier]) as cache:
        _generate(model, tokens)
        assert cache.stats().hits == 0
    with reuse(model, page=4, tenant="a", tiers=[tier]) as cache:
        _generate(model, tokens)
        assert cache.stats().tier_hits["disk"] > 0
        assert cache.stats().tenants["a"] == 16


def test_threads_share_pages_and_get_their_tokens() -> None:
    model, system = llama(), prompt(40)
    prompts = [_joined(system, prompt(4, seed)) for seed in range(12)]
    expected = [_generate(model, tokens) for tokens in prompts]
    found: dict[int, torch.Tensor] = {}
    with reuse(model, page=_PAGE, budget=200_000) as cache:
        _generate(model, prompts[0])

        def run(first: int) -> None:
            for place in range(first, 12, 4):
                found[place] = _generate(model, prompts[place])

        threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cache.stats().bytes <= 200_000
    assert len(found) == 12
    assert all(torch.equal(found[place], expected[place]) for place in found)


def test_what_gives_other_tokens_is_dropped_and_the_right_ones_returned() -> None:
    model, tokens = llama(), prompt(30)
    expected = _generate(model, tokens)
    with reuse(model, page=4, verify=1.0) as cache:
        _generate(model, tokens)
        for entry in cache._store.entries._entries.values():
            for name, tensor in entry.value.items():
                tensor.fill_(3.0 if name[0] == "v" else 0.0)
        assert torch.equal(_generate(model, tokens), expected)
        stats = copy.deepcopy(cache.stats())
        assert stats.verified == 1
        assert stats.quarantined > 0
        assert torch.equal(_generate(model, tokens), expected)


def _refused() -> list[tuple[str, Any]]:
    from transformers import (
        BertConfig,
        BertLMHeadModel,
        RwkvConfig,
        RwkvForCausalLM,
        T5Config,
        T5ForConditionalGeneration,
    )

    torch.manual_seed(0)
    bert = BertConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,
    )
    return [
        (
            "has an encoder",
            T5ForConditionalGeneration(T5Config(vocab_size=50, d_model=16, d_ff=16)),
        ),
        (
            "RwkvForCausalLM: its cache has 0 tokens after a prompt of 24",
            RwkvForCausalLM(RwkvConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2)),
        ),
        # Every token sees those after it.
        ("BertLMHeadModel: logits after a beginning .* differ", BertLMHeadModel(bert)),
        ("expected one of transformers that generates", torch.nn.Linear(2, 2)),
    ]


def test_models_without_pages_are_refused_by_name() -> None:
    for message, model in _refused():
        with pytest.raises(CacheError, match=message):
            reuse(model)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"budget": 0}, "reuse: budget"),
        ({"policy": "fifo"}, "reuse: policy"),
        ({"page": "x"}, "reuse: page"),
        ({"verify": 2}, "reuse: verify"),
        ({"tenant": 3}, "reuse: tenant"),
    ],
)
def test_bad_arguments_are_named(words: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        reuse(llama(), **words)
