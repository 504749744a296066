"""What a token costs is learned from calls."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import prompt_trace, reuse, simulate
from torchyard_cache._reuse._eviction import TokenCosts

_LENGTHS = st.lists(
    st.tuples(st.integers(0, 8192), st.integers(1, 4096)), min_size=3, max_size=40, unique=True
)


@given(calls=_LENGTHS, token=st.floats(1e-6, 1e-2), doubling=st.floats(100, 30_000))
def test_a_model_that_follows_the_law_is_foretold(
    calls: list[tuple[int, int]], token: float, doubling: float
) -> None:
    def takes(begin: int, tokens: int) -> float:
        # Of each token the same, and of each pair of it and one before it.
        return token * (tokens + tokens * (begin + tokens / 2) / doubling)

    costs = TokenCosts()
    for begin, tokens in [*calls, (0, 16), (16_000, 64)]:
        costs.note(begin, tokens, takes(begin, tokens))
    assert costs.seconds(3_000, 64) == pytest.approx(takes(3_000, 64), rel=0.15)


def test_calls_that_are_alike_tell_what_a_token_takes_and_no_more() -> None:
    costs = TokenCosts()
    for _ in range(5):
        costs.note(0, 100, 2.0)
    assert costs.doubling == 4096
    assert costs.seconds(0, 100) == pytest.approx(2.0)
    assert costs.seconds(4096, 1) == pytest.approx(2 * costs.seconds(0, 1), rel=1e-3)


def test_calls_that_took_less_after_more_tokens_do_not_make_a_page_free() -> None:
    costs = TokenCosts()
    costs.note(0, 64, 1.0)
    costs.note(4096, 64, 0.5)
    assert costs.doubling == 4096
    assert costs.seconds(4096, 64) > costs.seconds(0, 64) > 0


def test_old_calls_are_forgotten() -> None:
    costs = TokenCosts()
    costs.note(0, 10, 1000.0)
    for _ in range(64):
        costs.note(0, 10, 1.0)
    assert costs.seconds(0, 10) == pytest.approx(1.0)


def test_a_model_s_answers_take_no_part_in_what_its_prompts_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = llama()
    passed = 0.0

    def passes(_: object, args: tuple[object, ...], given: dict[str, torch.Tensor]) -> None:
        nonlocal passed
        passed += 20 + given["input_ids"].shape[1]

    # A hundred steps take some ten times as long as the prompt.
    model.register_forward_pre_hook(passes, with_kwargs=True)
    monkeypatch.setattr(time, "perf_counter", lambda: passed)
    with reuse(model, page=8) as short:
        model.generate(prompt(200), max_new_tokens=2, do_sample=False)
        model.generate(prompt(200), max_new_tokens=2, do_sample=False)
        few = short.stats().seconds_saved
    with reuse(model, page=8) as long:
        model.generate(prompt(200), max_new_tokens=100, do_sample=False)
        model.generate(prompt(200), max_new_tokens=2, do_sample=False)
        many = long.stats().seconds_saved
    assert many == pytest.approx(few, rel=0.01)
    assert few > 0


def test_what_a_prompt_costs_is_learned_of_answers_of_one_token() -> None:
    model = llama()
    with reuse(model, page=8) as cache:
        guess = cache._store.costs.seconds(0, 1000)
        model.generate(prompt(200), max_new_tokens=1, do_sample=False)
        assert cache._store.costs.seconds(0, 1000) != guess


def test_the_simulator_minds_where_a_page_is() -> None:
    trace = list(prompt_trace(50))
    narrow, wide = (simulate(trace, budget=300, doubling=n, policies=["lru"]) for n in (500, 1e6))
    assert narrow[0].tokens_saved == wide[0].tokens_saved
    assert narrow[0].cost_saved > 1.5 * wide[0].cost_saved
    assert wide[0].cost_saved == pytest.approx(wide[0].tokens_saved, rel=0.01)
    with pytest.raises(ValueError, match="simulate: doubling"):
        simulate(trace, budget=1, doubling=0.0)
