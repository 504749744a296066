"""Decoding, pages and packed sequences under Triton's interpreter, beside float64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from packages.triton.tests.decode_calls import (
    DECODE_CALLS,
    PACKED,
    call_with_pages,
    decode_call,
    packed_call,
    sequences,
)
from torchyard_attention import scores
from torchyard_attention.contract import AttentionResult
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import Ruler, report
from torchyard_triton.attention import Packed, Tiles, decode, decodes, varlen
from torchyard_triton.attention._decode import DecodePasses


@pytest.mark.parametrize("name", DECODE_CALLS)
def test_decode(name: str) -> None:
    call = decode_call(name)
    result = decode(call, tiles=Tiles(rows=32, keys=64))
    assert result.out.is_contiguous()
    assert not (message := report(Ruler(call).compare(result))), message


def test_keys_come_in_parts() -> None:
    call = decode_call("one-query")
    passes = DecodePasses(call, None, None, None, Tiles(rows=16, keys=32))
    assert (passes.splits, passes.fold) == (2, 2)
    assert decodes(call)
    assert not decodes(make_call(q_length=17, kv_length=32))


def test_sinks() -> None:
    call = replace(decode_call("few-queries"), max_scores=False)
    logits = torch.tensor([0.5, -1.0, 2.0, 0.0])
    result, exact = decode(call, sinks=logits), reference_forward(call)
    assert exact.lse is not None
    wanted = scores.sinks(exact.out, exact.lse, logits)
    torch.testing.assert_close(result.out, wanted.out, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(result.lse, wanted.lse, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("target", ["key", "value"])
def test_hidden_keys_reach_nothing(target: str, poison: float) -> None:
    call = decode_call("random")
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


def _same(one: AttentionResult, other: AttentionResult) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("out", "lse", "max_scores"))
    return all(torch.equal(first, second) for first, second in pairs)


def test_pages() -> None:
    call, whole = call_with_pages()
    got = decode(call, tiles=Tiles(rows=16, keys=16))
    assert not (message := report(Ruler(whole).compare(got))), message
    assert got.out[1].eq(0).all()
    # Neither the pages nor other sequences change a bit.
    assert _same(got, decode(call_with_pages(seed=6)[0], tiles=Tiles(rows=16, keys=16)))
    other = decode(call_with_pages((50, 64, 17))[0], tiles=Tiles(rows=16, keys=16))
    assert torch.equal(got.out[::2], other.out[::2])


def test_pages_of_sequences_with_fewer_parts() -> None:
    # Of the second sequence the second part has no keys, of the third one neither has.
    call, whole = call_with_pages((300, 20, 0), 300)
    got = decode(call, tiles=Tiles(rows=16, keys=64))
    assert not (message := report(Ruler(whole).compare(got))), message


def test_pages_with_a_mask() -> None:
    # The last queries of each sequence, causal.
    call, whole = call_with_pages((50, 64, 17), causal=True)
    got = decode(call, tiles=Tiles(rows=16, keys=16))
    assert not (message := report(Ruler(whole).compare(got))), message


@pytest.mark.parametrize("causal", [False, True])
def test_packed_sequences(causal: bool) -> None:
    checked = 0
    for number, (alone, part) in enumerate(sequences(causal)):
        assert not (message := report(Ruler(alone).compare(part))), f"{number}: {message}"
        checked += 1
    assert checked == len(PACKED)


def test_other_sequences_reach_nothing() -> None:
    ends = torch.tensor(PACKED).cumsum(0)
    keys = torch.randn(ends[-1, 1], generator=torch.Generator().manual_seed(3))[None, None, :, None]
    clean = packed_call(True, None, keys)[2]
    bad = keys.clone()
    bad[:, :, : int(ends[0, 1])] = math.nan
    result = packed_call(True, None, bad)[2]
    first = int(ends[0, 0])
    assert result.out[:, :, :first].isnan().all()
    assert torch.equal(result.out[:, :, first:], clean.out[:, :, first:])


def test_varlen_refuses_what_is_not_packed() -> None:
    packed = Packed(torch.tensor([0, 3]), torch.tensor([0, 3]), 3, 3)
    with pytest.raises(ValueError, match="expected one batch without mask and pages, got batch 2"):
        varlen(make_call(batch=2, q_length=3), packed)
