"""Prompts that begin alike share pages of a PagedKVCache; a full cache drops what is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from torch import Tensor, nn

from torchyard_attention import PagedKVCache, PagedStep, PagesExhaustedError
from torchyard_cache import CacheError, PrefixCache

_LAYERS, _HEADS, _KV_HEADS, _DIM, _WORDS = 2, 4, 2, 16, 50


class _Model(nn.Module):
    """Two layers of attention over a paged cache."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        width = _HEADS * _DIM
        self.embed = nn.Embedding(_WORDS, width)
        self.inward = nn.ModuleList(
            nn.Linear(width, width + 2 * _KV_HEADS * _DIM) for _ in range(_LAYERS)
        )
        self.outward = nn.Linear(width, _WORDS)

    def forward(self, step: PagedStep, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer, inward in enumerate(self.inward):
            rows = inward(x).unflatten(-1, (-1, _DIM))
            query, key, value = rows.split([_HEADS, _KV_HEADS, _KV_HEADS], dim=1)
            step.write(key, value, layer=layer)
            x = x + step.attention(query, layer=layer).flatten(1)
        return self.outward(x)


def _cache(pages: int = 64, page_size: int = 4) -> PagedKVCache:
    sizes = {"kv_heads": _KV_HEADS, "head_dim": _DIM, "layers": _LAYERS}
    return PagedKVCache(pages, page_size, **sizes)


@torch.no_grad()
def _answer(
    model: nn.Module,
    cache: PagedKVCache,
    sequence: int,
    prompt: list[int],
    count: int = 5,
) -> list[int]:
    """Compute what a sequence lacks of a prompt, and draw tokens; return all of both."""
    tokens, left = list(prompt), prompt[cache.length(sequence) :]
    for _ in range(count):
        logits = model(cache.extend(sequence, len(left)), torch.tensor(left))
        left = [int(logits[-1].argmax())]
        tokens += left
    return tokens


def _prompt(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(_WORDS, (count,), generator=generator).tolist()


def test_a_prompt_that_begins_as_another_has_its_pages_and_the_same_answer() -> None:
    model, cache = _Model(), _cache()
    first, second = _prompt(22), [*_prompt(22)[:18], *_prompt(6, 1)]
    expected = [_answer(model, cache, cache.open(), prompt) for prompt in (first, second)]
    with PrefixCache(cache, model) as prefixes:
        sequence = prefixes.open(first)
        assert cache.length(sequence) == 0
        answer = _answer(model, cache, sequence, first)
        assert answer == expected[0]
        # Of 26 positions that were computed, 24 fill pages.
        assert prefixes.keep(sequence, answer[:-1]) == 6
        cache.close(sequence)
        before = cache.memory.free
        sequence = prefixes.open(torch.tensor(second))
        assert cache.length(sequence) == 16
        assert cache.memory.free == before
        assert _answer(model, cache, sequence, second) == expected[1]
        # A chat's next turn begins with what was generated.
        assert cache.length(prefixes.open([*answer, 1])) == 24
        stats = prefixes.stats()
        assert (stats.calls, stats.hits, stats.entries) == (3, 2, 6)
        assert stats.tokens_reused == 16 + 24
        assert stats.bytes == 6 * cache.memory.page_bytes


def test_of_a_prompt_that_is_kept_whole_a_token_is_left_to_compute() -> None:
    model, cache = _Model(), _cache()
    with PrefixCache(cache, model) as prefixes:
        prompt = _prompt(8)
        sequence = prefixes.open(prompt)
        _answer(model, cache, sequence, prompt, 1)
        assert prefixes.keep(sequence, prompt) == 2
        assert prefixes.keep(sequence, prompt) == 0
        assert cache.length(prefixes.open(prompt)) == 4


def test_a_full_cache_drops_kept_pages_and_none_of_open_sequences() -> None:
    model, cache = _Model(), _cache(pages=8)
    with PrefixCache(cache, model) as prefixes:
        for seed in range(3):
            prompt = _prompt(9, seed)
            sequence = prefixes.open(prompt)
            # 9 positions and 4 that are drawn need 4 pages, 3 of which are kept.
            answer = _answer(model, cache, sequence, prompt)
            prefixes.keep(sequence, answer[:-1])
            cache.close(sequence)
        assert prefixes.stats().evictions == 2
        reading = prefixes.open([*_prompt(9, 2), 0])
        assert cache.length(reading) == 8
        other = cache.open()
        cache.extend(other, 24)
        assert cache.memory.free == 0
        assert prefixes.stats().entries == 2
        with pytest.raises(PagesExhaustedError, match="expected 1 free pages"):
            cache.extend(other, 1)
        # Closed by the cache, the sequence reads its pages no more.
        cache.close(reading)
        cache.extend(other, 8)
        assert prefixes.stats().entries == 0


def test_tenants_and_other_weights_find_nothing() -> None:
    model, cache = _Model(), _cache()
    prompt = _prompt(9)
    with PrefixCache(cache, model) as prefixes:
        sequence = prefixes.open(prompt, tenant="a")
        _answer(model, cache, sequence, prompt)
        prefixes.keep(sequence, prompt)
        assert cache.length(prefixes.open(prompt, tenant="b")) == 0
        assert cache.length(prefixes.open(prompt, tenant="a")) == 8
        with torch.no_grad():
            model.outward.weight.mul_(2)
        assert prefixes.keep(sequence, prompt) == 0
        assert cache.length(prefixes.open(prompt, tenant="a")) == 0
        assert prefixes.stats().tenants == {"a": 8, "b": 0}


def test_a_tenant_named_as_a_key_finds_no_page_of_another() -> None:
    cache = _cache(page_size=1)
    with PrefixCache(cache, nn.Linear(1, 1)) as prefixes:
        sequence = prefixes.open([1, 2, 3], tenant="a")
        cache.extend(sequence, 3)
        prefixes.keep(sequence, [1, 2, 3])
        for key in list(prefixes._entries._entries):
            assert cache.length(prefixes.open([2, 9], tenant=key)) == 0
            assert cache.length(prefixes.open([3, 9], tenant=key)) == 0


def test_what_was_computed_before_clear_is_not_kept_after_it() -> None:
    model, cache = _Model(), _cache()
    prompt = _prompt(9)
    with PrefixCache(cache, model) as prefixes:
        sequence = prefixes.open(prompt)
        _answer(model, cache, sequence, prompt)
        prefixes.clear()
        assert prefixes.keep(sequence, prompt) == 0


def test_at_most_as_many_pages_as_allowed_are_held() -> None:
    model, cache = _Model(), _cache()
    with PrefixCache(cache, model, pages=3, policy="lru") as prefixes:
        prompt = _prompt(17)
        sequence = prefixes.open(prompt)
        _answer(model, cache, sequence, prompt)
        assert prefixes.keep(sequence, prompt) == 3
        assert prefixes.stats().entries == 3


def test_closed_it_leaves_every_page_free_and_the_cache_to_another() -> None:
    model, cache = _Model(), _cache()
    first = PrefixCache(cache, model)
    with pytest.raises(CacheError, match="has a PrefixCache already"):
        PrefixCache(cache, model)
    sequence = first.open([1, 2, 3, 4, 5])
    cache.extend(sequence, 4)
    first.keep(sequence, [1, 2, 3, 4])
    cache.close(sequence)
    assert cache.memory.free == cache.memory.pages - 1
    first.close()
    assert cache.memory.free == cache.memory.pages
    PrefixCache(cache, model).close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p, s: p.keep(s + 1, [1]), "sequence: expected a sequence that PrefixCache.open"),
        (lambda p, s: p.keep(s, [1, 2]), "tokens: expected ids of the 1 positions"),
        (lambda p, s: p.open(torch.ones(2)), "tokens: expected ids"),
        (lambda p, s: p.open(torch.ones(1, 2, dtype=torch.int64)), "tokens: expected ids"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[..., Any], words: str) -> None:
    cache = _cache()
    with PrefixCache(cache, _Model()) as prefixes:
        sequence = prefixes.open([1, 2])
        cache.extend(sequence, 1)
        with pytest.raises(ValueError, match=words):
            call(prefixes, sequence)


class Prefixes(RuleBasedStateMachine):
    """Opens, computes, keeps, forks and closes at random, by keys that tell their tokens."""

    @initialize(
        pages=st.integers(2, 24),
        size=st.sampled_from([1, 2, 4]),
        policy=st.sampled_from(["lru", "slru", "lfu", "gdsf"]),
    )
    def make(self, pages: int, size: int, policy: str) -> None:
        self.cache = PagedKVCache(pages, size, kv_heads=1, head_dim=1)
        self.prefixes = PrefixCache(self.cache, nn.Linear(1, 1), policy=policy)
        self.tokens: dict[int, list[int]] = {}
        self.forks: set[int] = set()

    @staticmethod
    def sums(tokens: list[int]) -> Tensor:
        """Return a key for each position that depends on all tokens up to it, as a model's do."""
        found = [0.0]
        for token in tokens:
            found.append((found[-1] * 7 + token) % 8191)
        return torch.tensor(found[1:]).reshape(-1, 1, 1)

    @rule(tokens=st.lists(st.integers(1, 2), min_size=1, max_size=12))
    def open(self, tokens: list[int]) -> None:
        sequence = self.prefixes.open(tokens)
        length = self.cache.length(sequence)
        assert length < len(tokens)
        new = self.sums(tokens)[length:]
        try:
            self.cache.append(sequence, new, new)
        except PagesExhaustedError:
            # Nothing is dropped in vain: what is left of kept pages is read by open sequences.
            assert self.prefixes.stats().entries <= sum(map(len, self.tokens.values())) + length
            self.cache.close(sequence)
            return
        self.tokens[sequence] = tokens

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), part=st.floats(0, 1))
    def keep(self, data: st.DataObject, part: float) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens.keys() - self.forks) or [-1]))
        if sequence >= 0:
            tokens = self.tokens[sequence]
            self.prefixes.keep(sequence, tokens[: int(part * len(tokens) + 0.5)])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        fork = self.cache.fork(sequence)
        self.tokens[fork] = list(self.tokens[sequence])
        self.forks.add(fork)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.tokens)))
        del self.tokens[sequence]
        self.forks.discard(sequence)
        self.cache.close(sequence)

    @invariant()
    def every_open_sequence_has_its_own_keys(self) -> None:
        if not hasattr(self, "cache"):
            return
        for sequence, tokens in self.tokens.items():
            key, _ = self.cache.keys_and_values(sequence)
            assert torch.equal(key[0, :, 0], self.sums(tokens).flatten())
        held = self.prefixes.stats().entries
        assert len(self.cache.sequences) == len(self.tokens) + held

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            self.prefixes.close()
            assert set(self.cache.sequences) == set(self.tokens)


TestPrefixes = Prefixes.TestCase
TestPrefixes.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_page_is_found_by_all_that_is_before_it() -> None:
    cache = PagedKVCache(8, 1, kv_heads=1, head_dim=1)
    with PrefixCache(cache, nn.Linear(1, 1)) as prefixes:
        first = prefixes.open([1, 2, 3])
        keys = Prefixes.sums([1, 2, 3])
        cache.append(first, keys, keys)
        prefixes.keep(first, [1, 2, 3])
        found = [cache.length(prefixes.open([*tokens, 9])) for tokens in ([1, 2], [2], [1, 3])]
        assert found == [2, 0, 1]
        assert all(one.item() != other.item() for one, other in pairwise(keys))
