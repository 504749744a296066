"""Layers that keep no tokens begin with copies of their states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import STATEFUL, decoder, prompt
from torchyard_cache import CacheError, DiskTier, reuse

_WORDS: dict[str, Any] = {
    "do_sample": False,
    "return_dict_in_generate": True,
    "output_logits": True,
}


def _model(name: str) -> Any:
    return decoder(name, **STATEFUL[name])


def _generated(model: Any, tokens: torch.Tensor, **words: Any) -> Any:
    return model.generate(tokens, max_new_tokens=8, **_WORDS, **words)


def _prompts() -> list[torch.Tensor]:
    """Return prompts of which two end after what they share, and two within it."""
    system = prompt(44)
    lengths = ((44, 5), (44, 9), (21, 9), (21, 4), (21, 20))
    return [torch.cat([system[:, :n], prompt(m, m)], dim=1) for n, m in lengths]


@pytest.mark.parametrize("name", STATEFUL)
def test_prompts_that_begin_alike_give_their_tokens_and_logits(name: str) -> None:
    model = _model(name)
    plain = [_generated(model, tokens) for tokens in _prompts()]
    with reuse(model, page=8) as cache:
        found = [_generated(model, tokens) for tokens in _prompts()]
        stats = cache.stats()
    # The first ends with a page of its own: the second copies states where they part, and from
    # there on the third, which parts earlier, and so on.
    assert stats.tokens_reused == 16 + 16
    assert stats.bypassed == {}
    for one, other in zip(found, plain, strict=True):
        assert torch.equal(one.sequences, other.sequences)
        for logits, wanted in zip(one.logits, other.logits, strict=True):
            bound = 2048 * torch.finfo(torch.float32).eps * float(wanted.abs().max())
            assert float((logits - wanted).abs().max()) <= bound


@pytest.mark.parametrize("name", ["Mamba2", "Qwen3Next", "Lfm2"])
def test_the_turns_of_a_chat_begin_with_what_was_generated(name: str) -> None:
    model = _model(name)

    def chat() -> torch.Tensor:
        said = prompt(13)
        for turn in range(4):
            said = torch.cat([_generated(model, said).sequences, prompt(3, turn)], dim=1)
        return said

    plain = chat()
    with reuse(model, page=4) as cache:
        assert torch.equal(chat(), plain)
        assert cache.stats().hits == 3
        # All whole pages of the turn before: its last token was not computed with.
        assert cache.stats().tokens_reused == 20 + 28 + 40


@pytest.mark.sweep
@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    page=st.integers(1, 16),
    budget=st.sampled_from([2_000, 20_000, 1 << 24]),
)
def test_any_page_prompts_and_budget(lengths: list[int], page: int, budget: int) -> None:
    model, whole = _model("Bamba"), prompt(64)
    prompts = [torch.cat([whole[:, : 2 * n], prompt(n % 5 + 1, n)], dim=1) for n in lengths]
    plain = [_generated(model, tokens).sequences for tokens in prompts]
    with reuse(model, page=page, budget=budget) as cache:
        assert all(map(torch.equal, plain, [_generated(model, p).sequences for p in prompts]))
        assert cache.stats().bytes <= budget


def test_states_are_found_in_a_folder(tmp_path: Path) -> None:
    model, tokens = _model("Mamba2"), prompt(30)
    expected = _generated(model, tokens).sequences
    for hits in (0, 1):
        with reuse(model, page=8, tiers=[DiskTier(tmp_path / "pages", 1 << 22)]) as cache:
            assert torch.equal(_generated(model, tokens).sequences, expected)
            assert cache.stats().hits == hits
            assert cache.stats().tokens_reused == hits * 24


def test_states_that_give_other_tokens_are_dropped() -> None:
    model, tokens = _model("Qwen3Next"), prompt(30)
    expected = _generated(model, tokens).sequences
    with reuse(model, page=8, verify=1.0) as cache:
        _generated(model, tokens)
        for entry in cache._store.entries._entries.values():
            for name, tensor in entry.value.items():
                if name[0] in "cr":
                    tensor.fill_(3.0)
        assert torch.equal(_generated(model, tokens).sequences, expected)
        assert cache.stats().quarantined > 0


def test_drawing_at_random_follows_the_seed_as_without_reuse() -> None:
    model, tokens = _model("Mamba2"), prompt(30)
    words = {"max_new_tokens": 8, "do_sample": True, "top_k": 3}
    torch.manual_seed(5)
    expected = model.generate(tokens, **words)
    with reuse(model, page=8) as cache:
        for _ in range(2):
            torch.manual_seed(5)
            assert torch.equal(model.generate(tokens, **words), expected)
        assert cache.stats().hits == 1


def test_the_callers_processors_come_first() -> None:
    model, tokens = _model("Mamba2"), prompt(30)

    def forbid(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(1, torch.arange(2, 50), -torch.inf)

    expected = _generated(model, tokens, logits_processor=[forbid]).sequences
    with reuse(model, page=8):
        for _ in range(2):
            found = _generated(model, tokens, logits_processor=[forbid]).sequences
            assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Mamba", {"state_size": 8}),
        ("FalconMamba", {"state_size": 8}),
        (
            "Jamba",
            {
                "attn_layer_offset": 1,
                "attn_layer_period": 2,
                "num_experts": 2,
                "mamba_d_state": 8,
            },
        ),
    ],
)
def test_a_scan_that_begins_at_zero_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(CacheError, match=f"{name}ForCausalLM.* does not begin with what it kept"):
        reuse(decoder(name, **options))
