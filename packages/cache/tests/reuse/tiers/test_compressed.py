"""A compressed tier: near what was put, by a known error, in less than a third of the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import CompressedTier, DiskTier, MemoryTier, reuse
from torchyard_cache._reuse._tiers import pack, unpack

# What rounding to 255 steps, and to four bits of a number, leaves of a vector of normal numbers.
_MOST = {"int8": 0.012, "fp8": 0.04}
_FORMS = sorted(_MOST)


def _there_and_back(tensors: dict[str, torch.Tensor], form: Any) -> dict[str, torch.Tensor]:
    tier = CompressedTier(MemoryTier(1 << 30), form)
    tier.put("page", pack(tensors))
    data = tier.get("page")
    assert data is not None
    found = unpack(data, torch.device("cpu"))
    assert found is not None
    assert found.keys() == tensors.keys()
    return found


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_each_vector_comes_back_near_itself(form: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    # Vectors of very different sizes, which one factor for all would round to nothing.
    sizes = torch.logspace(-3, 3, 8).reshape(1, 1, 8, 1)
    exact = (torch.randn(1, 2, 8, 64, generator=generator) * sizes).to(dtype)
    got = _there_and_back({"k0": exact}, form)["k0"]
    assert got.dtype == dtype
    errors = (got.double() - exact.double()).norm(dim=-1) / exact.double().norm(dim=-1)
    assert errors.max() < _MOST[form]
    # Compression took place: what is stored exactly has no error.
    assert errors.min() > 1e-4


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool]),
    form=st.sampled_from(_FORMS),
    special=st.sampled_from([0.0, float("inf"), float("-inf"), float("nan"), 1e-38, 3e38]),
)
def test_tensors_of_any_shape_keep_it_and_what_is_not_finite(
    shape: list[int], dtype: torch.dtype, form: str, special: float
) -> None:
    tensor = torch.randn(shape)
    if tensor.numel() and dtype.is_floating_point:
        tensor.view(-1)[0] = special
    tensor = tensor.to(dtype)
    got = _there_and_back({"r0": tensor}, form)["r0"]
    assert (got.dtype, got.shape) == (dtype, tensor.shape)
    if not dtype.is_floating_point or not tensor.float().isfinite().all():
        assert torch.equal(got.nan_to_num(0.5, 1.0, -1.0), tensor.nan_to_num(0.5, 1.0, -1.0))
    else:
        assert got.float().isfinite().all()


@pytest.mark.parametrize("form", _FORMS)
def test_a_vector_of_zeros_stays_one(form: str) -> None:
    tensor = torch.zeros(2, 4)
    tensor[1] = 1.0
    assert torch.equal(_there_and_back({"v0": tensor}, form)["v0"], tensor)


@pytest.mark.parametrize(("form", "dtype"), [("int8", torch.float32), ("fp8", torch.bfloat16)])
def test_the_error_and_the_share_of_bytes_are_told(form: Any, dtype: torch.dtype) -> None:
    tier = CompressedTier(MemoryTier(1 << 30), form)
    assert (tier.error, tier.share) == (0.0, 1.0)
    exact = torch.randn(1, 4, 64, 128, generator=torch.Generator().manual_seed(0)).to(dtype)
    tier.put("page", pack({"k0": exact}))
    data = tier.get("page")
    assert data is not None
    found = unpack(data, torch.device("cpu"))
    assert found is not None
    measured = float((found["k0"].double() - exact.double()).norm() / exact.double().norm())
    assert tier.error == pytest.approx(measured, rel=1e-6)
    # A byte for each number, and four for each vector.
    expected = (128 + 4) / (128 * exact.element_size())
    assert tier.share == pytest.approx(expected, rel=0.02)


def test_exact_entries_and_those_of_another_form_are_left_alone() -> None:
    memory = MemoryTier(1 << 30)
    memory.put("page", b"exact")
    tiers = [CompressedTier(memory, form) for form in ("int8", "fp8")]
    for tier in tiers:
        assert tier.get("page") is None
        tier.put("page", pack({"k0": torch.randn(2, 2)}))
    tiers[0].delete("page")
    assert tiers[0].get("page") is None
    assert tiers[1].get("page") is not None
    assert memory.get("page") == b"exact"


@pytest.mark.parametrize("form", _FORMS)
def test_a_model_finds_its_prompt_in_a_compressed_folder(form: Any, tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)

    def tier() -> CompressedTier:
        return CompressedTier(DiskTier(tmp_path / "pages", 1 << 20), form)

    with torch.no_grad():
        expected = model(tokens).logits[:, -1]
    first = tier()
    with reuse(model, page=4, tiers=[first]):
        model.generate(tokens, max_new_tokens=1, do_sample=False)
    assert 0 < first.error < _MOST[form]
    with reuse(model, page=4, tiers=[tier()]) as cache:
        found = model.generate(
            tokens,
            max_new_tokens=1,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
        assert cache.stats().tier_hits == {f"disk-{form}": 4}
    difference = (found.logits[0] - expected).norm() / expected.norm()
    assert 0 < difference < 0.1


def test_a_damaged_entry_is_dropped_and_computed(tmp_path: Path) -> None:
    model, tokens = llama(), prompt(20)
    folder = tmp_path / "pages"
    with reuse(model, page=4, tiers=[CompressedTier(DiskTier(folder, 1 << 20), "int8")]):
        expected = model.generate(tokens, max_new_tokens=4, do_sample=False)
    for path in folder.glob("*.safe"):
        path.write_bytes(path.read_bytes()[:-1])
    tier = CompressedTier(DiskTier(folder, 1 << 20), "int8")
    with reuse(model, page=4, tiers=[tier]) as cache:
        assert torch.equal(model.generate(tokens, max_new_tokens=4, do_sample=False), expected)
        assert cache.stats().quarantined == 1


@pytest.mark.parametrize(
    ("tier", "form", "said"),
    [
        (None, "int8", r"CompressedTier: tier: expected a tier, such as DiskTier"),
        (MemoryTier(1 << 30), "int4", r"CompressedTier: form: expected .*int8.*fp8"),
        (MemoryTier(1 << 30), None, r"CompressedTier: form: expected"),
    ],
)
def test_what_is_no_tier_or_form_is_refused(tier: Any, form: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        CompressedTier(tier, form)


def test_memory_of_compressed_pages_answers_where_exact_ones_were_dropped() -> None:
    model, first, second = llama(), prompt(40), prompt(41).flip(1)
    tier = CompressedTier(MemoryTier(1 << 20), "int8")
    # Room for the exact pages of one prompt.
    with reuse(model, page=8, budget=12_000, tiers=[tier]) as cache:
        for tokens in (first, second, first):
            model.generate(tokens, max_new_tokens=2, do_sample=False)
        assert cache.stats().tier_hits["memory-int8"] > 0
        assert tier.share < 0.75


def test_memory_stays_within_its_budget_and_drops_what_was_used_last_long_ago() -> None:
    tier = MemoryTier(100)
    for key in "abc":
        tier.put(key, bytes(40))
        tier.get("a")
    assert tier.size == 80
    assert tier.get("b") is None
    assert tier.get("a") == tier.get("c") == bytes(40)
    tier.put("large", bytes(101))
    assert tier.get("large") is None
    tier.delete("a")
    assert tier.size == 40
