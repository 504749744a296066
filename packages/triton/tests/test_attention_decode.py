"""Decoding, pages and packed sequences under Triton's interpreter, beside float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from packages.attention.tests.paged.paged_calls import paged
from torchyard_attention import scores
from torchyard_attention.cases import MASKS
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, traced_score_mod
from torchyard_attention.tolerance import Ruler, report
from torchyard_triton.attention import Packed, Tiles, decode, decodes, varlen
from torchyard_triton.attention._decode import DecodePasses

_SLOPES: Final = torch.tensor([0.5, 0.25, 0.125, 0.0625])
_SMALL: Final = {"batch": 2, "q_heads": 4, "kv_heads": 2, "q_length": 3, "head_dim": 16}
_CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one-query": {"q_length": 1, "kv_length": 300},
    "few-queries": {"kv_length": 70},
    "no-keys": {"kv_length": 0},
    "one-key-head": {"kv_heads": 1, "kv_length": 70, "score": "alibi"},
    "no-groups": {"kv_heads": 4, "kv_length": 40},
    "causal": {"mask": "causal", "block_size": (16, 16), "kv_length": 40},
    "random": {"mask": "random", "block_size": (2, 16), "kv_length": 40, "score": "alibi"},
    "lists-of-each-head": {"mask": "per_head", "block_size": (16, 16), "kv_length": 70},
    "half": {"dtype": torch.float16, "q_length": 1, "kv_length": 300, "value_dim": 24},
    "tiles-of-rows": {"q_length": 20, "mask": "empty_rows", "block_size": (8, 32)},
}


def _alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s + _SLOPES[h] * (k - q)


def _call(name: str) -> AttentionCall:
    sizes = {**_SMALL, **_CALLS[name]}
    mask, score = sizes.pop("mask", ""), sizes.pop("score", "")
    sizes.setdefault("kv_length", sizes["q_length"])
    shape = (sizes[size] for size in ("batch", "q_heads", "q_length", "kv_length"))
    visible = MASKS[mask](*shape) if mask else None
    return make_call(**sizes, visible=visible, score_mod=_alibi if score else None, max_scores=True)


@pytest.mark.parametrize("name", _CALLS)
def test_decode(name: str) -> None:
    call = _call(name)
    result = decode(call, tiles=Tiles(rows=32, keys=64))
    assert result.out.is_contiguous()
    assert not (message := report(Ruler(call).compare(result))), message


def test_keys_come_in_parts() -> None:
    call = _call("one-query")
    passes = DecodePasses(call, None, None, None, Tiles(rows=16, keys=32))
    assert (passes.splits, passes.fold) == (2, 2)
    assert decodes(call)
    assert not decodes(make_call(q_length=17, kv_length=32))


def test_sinks() -> None:
    call = replace(_call("few-queries"), max_scores=False)
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0])
    result, exact = decode(call, sinks=logits), reference_forward(call)
    assert exact.lse is not None
    wanted = scores.sinks(exact.out, exact.lse, logits)
    torch.testing.assert_close(result.out, wanted.out, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.lse, wanted.lse, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("target", ["key", "value"])
def test_hidden_keys_reach_nothing(target: str, poison: float) -> None:
    call = _call("random")
    bad = getattr(call, target).clone()
    bad[:, :, [3, 30], 5] = poison
    call = replace(call, **{target: bad})
    got, wanted = decode(call), reference_forward(call)
    for name in ("out", "lse", "max_scores"):
        one, other = getattr(got, name), getattr(wanted, name)
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert got.lse is not None
    assert got.out.isfinite().any()
    assert not got.out.isfinite().all()


_LENGTHS: Final = (50, 0, 17)


def _paged(lengths: tuple[int, ...] = _LENGTHS, **how: Any) -> tuple[AttentionCall, AttentionCall]:
    """Return a call whose keys are in pages, and the same with contiguous keys, without NaN."""
    return paged(lengths, kv_length=64, score_mod=_alibi, **how)


def _same(one: AttentionResult, other: AttentionResult) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("out", "lse", "max_scores"))
    return all(torch.equal(first, second) for first, second in pairs)


def test_pages() -> None:
    call, whole = _paged()
    got = decode(call, tiles=Tiles(rows=16, keys=16))
    assert not (message := report(Ruler(whole).compare(got))), message
    assert got.out[1].eq(0).all()
    # Neither the pages nor other sequences change a bit.
    assert _same(got, decode(_paged(seed=6)[0], tiles=Tiles(rows=16, keys=16)))
    other = decode(_paged((50, 64, 17))[0], tiles=Tiles(rows=16, keys=16))
    assert torch.equal(got.out[::2], other.out[::2])


def test_pages_with_a_mask() -> None:
    # The last queries of each sequence, causal.
    call, whole = _paged((50, 64, 17), causal=True)
    got = decode(call, tiles=Tiles(rows=16, keys=16))
    assert not (message := report(Ruler(whole).compare(got))), message


# Queries and keys of each sequence.
_PACKED: Final = ((20, 20), (1, 30), (0, 5), (7, 0), (12, 19))


def _varlen(
    causal: bool, mod: Callable[..., Any] | None, keys: Tensor | None = None
) -> tuple[AttentionCall, Packed, AttentionResult]:
    counts = torch.tensor(_PACKED)
    starts = torch.nn.functional.pad(counts.cumsum(0), (0, 0, 1, 0))
    q_total, k_total = starts[-1].tolist()
    call = make_call(
        batch=1, q_heads=4, kv_heads=2, q_length=q_total, kv_length=k_total, head_dim=16,
        score_mod=mod,
    )  # fmt: skip
    if keys is not None:
        call = replace(call, key=keys.expand_as(call.key), value=keys.expand_as(call.value))
    longest = counts.amax(0).tolist()
    packed = Packed(starts[:, 0].int(), starts[:, 1].contiguous(), *longest, causal)
    return call, packed, varlen(call, packed, tiles=Tiles(rows=32, keys=16))


def _one(
    call: AttentionCall, number: int, causal: bool, mod: Callable[..., Any] | None
) -> AttentionCall:
    """Return the call of one sequence."""
    counts = torch.tensor(_PACKED)
    (q_first, k_first), (q_count, k_count) = counts[:number].sum(0).tolist(), _PACKED[number]
    q, k = torch.arange(q_count)[:, None], torch.arange(k_count)
    visible = (k <= q + k_count - q_count)[None, None] if causal else None
    alone = make_call(
        batch=1, q_heads=4, kv_heads=2, q_length=q_count, kv_length=k_count, head_dim=16,
        visible=visible,
    )  # fmt: skip
    keys = slice(k_first, k_first + k_count)
    score = None
    if mod is not None:
        score = traced_score_mod(lambda s, b, h, q, k: mod(s, b + number, h, q, k))
    return replace(
        alone,
        query=call.query[:, :, q_first : q_first + q_count],
        key=call.key[:, :, keys],
        value=call.value[:, :, keys],
        score_mod=score,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences(causal: bool) -> None:
    weights = torch.linspace(0.5, 1.5, len(_PACKED))

    def mod(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return s * weights[b] + _SLOPES[h] * (k - q)

    call, packed, result = _varlen(causal, mod)
    assert result.lse is not None
    starts = packed.starts_q.tolist()
    for number, (first, end) in enumerate(pairwise(starts)):
        alone = _one(call, number, causal, mod)
        part = AttentionResult(
            result.out[:, :, first:end].contiguous(), result.lse[:, :, first:end]
        )
        assert not (message := report(Ruler(alone).compare(part))), f"{number}: {message}"


def test_other_sequences_reach_nothing() -> None:
    ends = torch.tensor(_PACKED).cumsum(0)
    keys = torch.randn(ends[-1, 1], generator=torch.Generator().manual_seed(3))[None, None, :, None]
    clean = _varlen(True, None, keys)[2]
    bad = keys.clone()
    bad[:, :, : int(ends[0, 1])] = math.nan
    result = _varlen(True, None, bad)[2]
    first = int(ends[0, 0])
    assert result.out[:, :, :first].isnan().all()
    assert torch.equal(result.out[:, :, first:], clean.out[:, :, first:])


def test_varlen_refuses_what_is_not_packed() -> None:
    packed = Packed(torch.tensor([0, 3]), torch.tensor([0, 3]), 3, 3)
    with pytest.raises(ValueError, match="expected one batch without mask and pages, got batch 2"):
        varlen(make_call(batch=2, q_length=3), packed)
