"""Keys in the pages of a cache, and packed sequences, in Metal beside float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from packages.attention.tests.paged.paged_calls import paged
from plugins.mps.tests.attention.decode_calls import PART, alibi
from plugins.mps.tests.attention.forward_runs import forward, same
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.pages import gathered
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import Ruler, report
from torchyard_mps.attention._parts import parts_of

_ONCE: Final[dict[str, Any]] = {"orders": 1, "address_sanitizer": False}
_LENGTHS: Final = (150, 0, 17, 64)
# Name -> arguments of paged().
_CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one-query": {"q_length": 1},
    "three-queries": {"q_length": 3, "score_mod": alibi},
    "four-queries-half": {"q_length": 4, "dtype": torch.float16, "page_size": 32},
    "two-queries-bfloat16": {"q_length": 2, "dtype": torch.bfloat16, "score_mod": alibi},
    "many-queries": {"q_length": 40, "score_mod": alibi},
    "pages-of-one-key": {"page_size": 1},
    "pages-that-tiles-cross": {"page_size": 5},
    "one-page": {"page_size": 256},
    "causal": {"causal": True, "block_size": (16, 16)},
    "causal-odd-blocks": {"causal": True, "block_size": (3, 13), "page_size": 7},
    "causal-many-queries": {"causal": True, "q_length": 17, "lengths": (150, 17, 64)},
}
_QUICK: Final = ("three-queries", "many-queries", "causal-odd-blocks")


def _run(call: AttentionCall, **options: Any) -> AttentionResult:
    result, findings = forward(call, None, PART, **(_ONCE | options))
    assert not findings
    return result


@pytest.mark.parametrize(
    "name",
    [name if name in _QUICK else pytest.param(name, marks=pytest.mark.sweep) for name in _CALLS],
)
def test_pages(name: str) -> None:
    call, whole = paged(**{"lengths": _LENGTHS, **_CALLS[name]})
    few = call.query.shape[2] <= 8
    assert (parts_of(call, PART).count > 1) == few
    assert not (message := report(Ruler(whole).compare(_run(call)))), message


def test_neither_pages_nor_neighbours_change_a_bit() -> None:
    call, _ = paged(_LENGTHS, score_mod=alibi)
    result = _run(call, orders=2)
    assert same(result, _run(paged(_LENGTHS, score_mod=alibi, seed=6)[0]))
    # The table of the others' pages is wider, so that there are more parts.
    others, _ = paged((150, 90, 17, 64), score_mod=alibi, width=40)
    assert parts_of(others, PART).count > parts_of(call, PART).count
    after = _run(others)
    for name in ("out", "lse", "max_scores"):
        one, other = getattr(result, name), getattr(after, name)
        assert torch.equal(one[[0, 2, 3]], other[[0, 2, 3]])


def test_a_sequence_without_keys_is_empty() -> None:
    result = _run(paged(_LENGTHS)[0])
    assert result.out[1].eq(0).all()
    assert result.lse is not None
    assert result.lse[1].eq(-math.inf).all()


def test_contiguous_keys_give_the_same_bits() -> None:
    call, _ = paged((150, 150), score_mod=alibi)
    assert same(_run(call), _run(gathered(call)))


@pytest.mark.parametrize("q_counts", [(1, 1, 1, 1), (3, 0, 4, 1), (20, 1, 0, 12)], ids=str)
def test_packed_sequences(q_counts: tuple[int, ...]) -> None:
    """What varlen_attention makes of packed sequences: one batch, a mask, and places of tables."""
    counts = torch.tensor([q_counts, (60, 5, 0, 100)])
    q_of, k_of = (torch.arange(4).repeat_interleave(each) for each in counts)
    q_at, k_at = (torch.cat([torch.arange(int(count)) for count in each]) for each in counts)
    behind = (counts[1] - counts[0])[q_of]
    visible = (q_of[:, None] == k_of) & (k_at <= (q_at + behind)[:, None])
    call = make_call(
        batch=1,
        q_heads=4,
        kv_heads=2,
        q_length=len(q_of),
        kv_length=len(k_of),
        head_dim=16,
        visible=visible,
        block_size=(4, 128),
        score_mod=lambda s, b, h, q, k: alibi(s * (1 + 0.1 * q_of[q]), b, h, q_at[q], k_at[k]),
        max_scores=True,
    )
    assert not (message := report(Ruler(call).compare(_run(call)))), message
    # Nothing of one sequence reaches another.
    value = call.value.clone()
    value[:, :, :60] = math.nan
    poisoned = replace(call, value=value)
    got, wanted = _run(poisoned).out, reference_forward(poisoned).out
    assert torch.equal(got.isnan(), wanted.isnan())
    assert wanted.isnan().any()
    assert not wanted.isnan().all()
