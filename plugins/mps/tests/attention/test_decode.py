"""Few queries over keys in parts, in Metal: beside float64, and the same bits in every run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.attention.tests.attention_calls import LAYOUTS, laid_out
from packages.attention.tests.score_programs import LENGTH, MASKS, SCORES
from plugins.mps.tests.attention.decode_calls import CALLS, PART, alibi, decode_call
from plugins.mps.tests.attention.forward_runs import forward, same
from plugins.mps.tests.attention.random_calls import random_call
from torchyard_attention.contract import AttentionCall, ScoreMod
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, traced_score_mod
from torchyard_attention.tolerance import Ruler, report
from torchyard_mps.attention import forward_launches
from torchyard_mps.attention._parts import parts_of

_ONCE: Final[dict[str, Any]] = {"orders": 1, "address_sanitizer": False}
_SIZES: Final = {"batch": 1, "q_heads": 4, "kv_heads": 2, "q_length": 3, "head_dim": 8}
# Each of another kind; the rest are the same with other sizes and programs.
_QUICK: Final = ("one-query", "four-queries-bfloat16", "tiles-of-rows", "hidden-parts", "softcap")


def _marked(names: Any, quick: tuple[str, ...]) -> list[Any]:
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.sweep) for name in names
    ]


def _check(
    call: AttentionCall, mod: ScoreMod | None = None, part: int = PART, **options: Any
) -> None:
    given = call if mod is None else replace(call, mask=None)
    result, findings = forward(given, mod, part, **(_ONCE | options))
    assert not findings
    assert result.out.is_contiguous()
    assert not (message := report(Ruler(call).compare(result))), message


@pytest.mark.parametrize("name", _marked(CALLS, _QUICK))
def test_calls(name: str) -> None:
    call = decode_call(name)
    assert parts_of(call, PART).count > 1
    _check(call)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["one-query", "tiles-of-rows", "hidden-parts"])
def test_other_orders_of_threads_find_nothing(name: str) -> None:
    _check(decode_call(name), orders=3, address_sanitizer=True)


@pytest.mark.parametrize("layout", _marked(LAYOUTS, LAYOUTS[:1]))
def test_strides(layout: str) -> None:
    _check(laid_out(decode_call("one-key-head"), layout))


@pytest.mark.sweep
@pytest.mark.parametrize("name", SCORES)
def test_score_programs(name: str) -> None:
    _check(make_call(**_SIZES, kv_length=LENGTH, score_mod=SCORES[name]), part=32)


@pytest.mark.parametrize("name", _marked(MASKS, ("document",)))
def test_mask_programs(name: str) -> None:
    function, zero = MASKS[name], torch.zeros(1, dtype=torch.int64)
    visible = function(zero, zero, torch.arange(3)[:, None], torch.arange(LENGTH))
    call = make_call(
        **_SIZES, kv_length=LENGTH, visible=visible.expand(1, 1, 3, LENGTH), score_mod=alibi
    )
    _check(call, traced_score_mod(lambda s, b, h, q, k: function(b, h, q, k)), part=32)


@given(
    st.integers(1, 2),
    st.sampled_from((1, 2, 5)),
    st.integers(1, 8),
    st.integers(0, 200),
    st.sampled_from((32, 64, 256)),
    st.sampled_from(((0, 0), (16, 16), (3, 13), (2, 128))),
    st.integers(0, 2**20),
)
@settings(max_examples=4)
def test_sizes(
    kv_heads: int,
    group: int,
    q_length: int,
    kv_length: int,
    part: int,
    blocks: tuple[int, int],
    seed: int,
) -> None:
    call = random_call(
        *(kv_heads, group, q_length, kv_length, blocks, seed),
        score_mod=alibi,
        max_scores=True,
    )
    _check(call, part=part)


@pytest.mark.parametrize("name", ["four-queries", "three-queries-half"])
def test_the_number_of_parts_changes_roundings_alone(name: str) -> None:
    call, ruler = decode_call(name), Ruler(decode_call(name))
    counts = set()
    for part in (32, 64, 96, 1024):
        counts.add(parts_of(call, part).count)
        result, findings = forward(call, None, part, **_ONCE)
        assert not findings
        assert not (message := report(ruler.compare(result))), f"{part}: {message}"
    assert 1 in counts
    assert len(counts) > 2


def test_each_run_gives_the_same_bits() -> None:
    call = decode_call("four-queries-bfloat16")
    first, findings = forward(call, None, PART, orders=3, address_sanitizer=False)
    assert not findings
    assert same(first, forward(call, None, PART, **_ONCE)[0])


def test_parts_that_show_no_key_change_no_bit() -> None:
    call = make_call(**_SIZES, kv_length=200, score_mod=alibi, max_scores=True)
    short = replace(call, key=call.key[:, :, :60], value=call.value[:, :, :60])
    hides = traced_score_mod(lambda s, b, h, q, k: k < 60)
    launches, _ = forward_launches(short, part=PART)
    assert len(launches) == 1
    result, findings = forward(call, hides, PART, **_ONCE)
    assert not findings
    assert same(result, forward(short, None, PART, **_ONCE)[0])


def test_rows_that_see_nothing_in_any_part_are_empty() -> None:
    call = make_call(**_SIZES, kv_length=200, max_scores=True)
    shows = traced_score_mod(lambda s, b, h, q, k: q == 1)
    result, findings = forward(call, shows, PART, **_ONCE)
    assert not findings
    for name, empty in (("out", 0.0), ("lse", -math.inf), ("max_scores", -math.inf)):
        tensor = getattr(result, name)
        assert tensor[:, :, ::2].eq(empty).all()
        assert tensor[:, :, 1].isfinite().all()


def test_how_a_call_is_cut_depends_on_sizes_alone() -> None:
    calls = [make_call(**(_SIZES | {"q_length": rows}), kv_length=1000) for rows in (1, 8, 9)]
    # Queries, then threads, folded heads and parts: 4 of 256 keys where queries are few.
    cut = [(parts.threads, parts.fold, parts.count) for parts in map(parts_of, calls)]
    assert cut == [(32, 2, 4), (64, 2, 4), (64, 1, 1)]
    assert parts_of(make_call(**_SIZES, kv_length=256)).count == 1
    assert [len(forward_launches(call)[0]) for call in calls] == [2, 2, 1]


def test_heads_with_lists_of_their_own_are_not_folded() -> None:
    parts = parts_of(decode_call("lists-of-each-head"), PART)
    assert (parts.fold, parts.threads) == (1, 32)
    assert parts.count > 1


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("target", ["key", "value"])
def test_hidden_keys_reach_no_row(target: str, poison: float) -> None:
    call = decode_call("blocks-of-rows")
    bad = getattr(call, target).clone()
    # One that some rows see, and that others do not, in each of two parts.
    bad[:, :, [3, 90], 5] = poison
    call = replace(call, **{target: bad}, max_scores=False)
    (got, findings), wanted = forward(call, None, PART, **_ONCE), reference_forward(call)
    assert not findings
    for name in ("out", "lse"):
        one, other = getattr(got, name), getattr(wanted, name)
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5, equal_nan=True)
    assert got.out.isfinite().any()
    assert not got.out.isfinite().all()


def test_a_greatest_score_of_nan_is_nan_whatever_part_has_it() -> None:
    call = make_call(**_SIZES, kv_length=200, max_scores=True)
    key = call.key.clone()
    key[:, :, 100] = math.nan
    result, findings = forward(replace(call, key=key), None, PART, **_ONCE)
    assert not findings
    assert result.max_scores is not None
    assert result.max_scores.isnan().all()
