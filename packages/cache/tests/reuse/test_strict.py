"""In strict mode logits are the same to the last bit, whatever is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import STATEFUL, WINDOWED, decoder, llama, prompt
from torchyard_cache import DiskTier, reuse

_PAGE = 8


def _logits(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    found = model.generate(
        tokens,
        max_new_tokens=4,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(found.logits)


def _alone(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Return logits where nothing is found."""
    with reuse(model, page=_PAGE, strict=True):
        return _logits(model, tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Llama", {}),
        ("Mistral", {**WINDOWED["Mistral"], "sliding_window": 20}),
        ("Gemma3Text", {**WINDOWED["Gemma3Text"], "sliding_window": 20}),
        ("Bamba", STATEFUL["Bamba"]),
    ],
)
def test_what_is_found_changes_no_bit(
    name: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    model = decoder(name, **options).to(dtype)
    whole = prompt(60)
    prompts = [torch.cat([whole[:, :n], prompt(n % 7 + 1, n)], dim=1) for n in (60, 33, 47, 60)]
    expected = [_alone(model, tokens) for tokens in prompts]
    with reuse(model, page=_PAGE, strict=True) as cache:
        found = [_logits(model, tokens) for tokens in prompts]
        assert cache.stats().hits >= 2
    assert all(map(torch.equal, expected, found))


@pytest.mark.sweep
@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    page=st.integers(1, 16),
    threads=st.integers(1, 2),
)
def test_any_prompts_that_share_beginnings(lengths: list[int], page: int, threads: int) -> None:
    model, whole, before = llama(), prompt(64), torch.get_num_threads()
    prompts = [torch.cat([whole[:, :n], prompt(n % 5 + 1, n)], dim=1) for n in lengths]
    torch.set_num_threads(threads)
    try:
        expected = []
        for tokens in prompts:
            with reuse(model, page=page, strict=True):
                expected.append(_logits(model, tokens))
        with reuse(model, page=page, strict=True):
            found = [_logits(model, tokens) for tokens in prompts]
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, expected, found))


def test_what_was_generated_is_not_found() -> None:
    model = llama()
    with reuse(model, page=4, strict=True) as cache:
        said = model.generate(prompt(12), max_new_tokens=12, do_sample=False)
        model.generate(torch.cat([said, prompt(3, 1)], dim=1), max_new_tokens=2, do_sample=False)
        # The last page of a prompt is computed with its answer.
        assert cache.stats().tokens_reused == 8


def test_pages_of_the_other_mode_are_not_found(tmp_path: Any) -> None:
    model = llama()
    for strict in (False, True, True):
        tiers = [DiskTier(tmp_path, 1 << 20)]
        with reuse(model, page=4, tiers=tiers, strict=strict) as cache:
            model.generate(prompt(12), max_new_tokens=2, do_sample=False)
            hits = cache.stats().hits
    assert hits == 1
    with reuse(model, page=4, tiers=[DiskTier(tmp_path, 1 << 20)]) as cache:
        model.generate(prompt(13, 5), max_new_tokens=2, do_sample=False)
        assert cache.stats().hits == 0


def test_a_share_is_computed_again_page_by_page() -> None:
    model, tokens = llama(), prompt(30)
    with reuse(model, page=4, strict=True, verify=1.0) as cache:
        first, second = _logits(model, tokens), _logits(model, tokens)
        stats = cache.stats()
    assert torch.equal(first, second)
    assert (stats.verified, stats.hits) == (1, 1)
