"""The forward kernel in Metal is as near to float64 as a naive computation, and has no finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from packages.attention.tests.attention_calls import CALLS, LAYOUTS, call_of, laid_out
from packages.attention.tests.score_programs import LENGTH, MASKS, SCORES
from plugins.mps.tests.attention.forward_runs import forward
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call, mask_blocks, traced_score_mod
from torchyard_attention.tolerance import Ruler, report
from torchyard_mps.attention import forward_launches
from torchyard_programs import UnsupportedProgramError

# Another order, or AddressSanitizer, takes as long again.
_ONCE: Final[dict[str, Any]] = {"orders": 1, "address_sanitizer": False}
_WHOLE: Final = ("causal", "grouped-2")


def _check(call: AttentionCall, **options: Any) -> None:
    result, findings = forward(call, **options)
    assert not findings
    assert not (message := report(Ruler(call).compare(result))), message


@pytest.mark.parametrize("name", CALLS)
def test_forward(name: str) -> None:
    _check(call_of(name), **({} if name in _WHOLE else _ONCE))


@pytest.mark.parametrize("name", ["plain", "causal"])
def test_bfloat16(name: str) -> None:
    call = call_of(name)
    narrow = (tensor.bfloat16() for tensor in (call.query, call.key, call.value))
    query, key, value = narrow
    _check(replace(call, query=query, key=key, value=value), **_ONCE)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(layout: str) -> None:
    _check(laid_out(call_of("grouped-2"), layout), **_ONCE)


@pytest.mark.parametrize("name", SCORES)
def test_score_programs(name: str) -> None:
    call = make_call(
        batch=1,
        q_heads=4,
        kv_heads=2,
        q_length=33,
        kv_length=LENGTH,
        head_dim=8,
        score_mod=SCORES[name],
    )
    _check(call, **_ONCE)


@pytest.mark.parametrize("name", MASKS)
def test_mask_programs(name: str) -> None:
    function, at = MASKS[name], torch.arange(LENGTH)
    zero = torch.zeros(1, dtype=torch.int64)
    visible = function(zero, zero, at[:, None], at).expand(1, 1, LENGTH, LENGTH)
    call = make_call(
        batch=1, q_heads=1, q_length=LENGTH, head_dim=8, visible=visible, block_size=(16, 32)
    )
    assert call.mask is not None
    mod = traced_score_mod(lambda s, b, h, q, k: function(b, h, q, k))
    # Half of them with the mask's lists, where the program is computed and the bits are not read.
    hidden = replace(call.mask, bits=torch.zeros_like(call.mask.bits))
    mask = hidden if list(MASKS).index(name) % 2 else None
    result, findings = forward(replace(call, mask=mask), mod, **_ONCE)
    assert not findings
    assert not (message := report(Ruler(call).compare(result))), message


def test_blocks_that_are_not_listed_are_not_read() -> None:
    visible = torch.zeros((1, 1, 32, 64), dtype=torch.bool)
    visible[..., 16:32] = True
    call = make_call(batch=1, q_heads=1, q_length=32, kv_length=64, head_dim=8, visible=visible)
    call = replace(call, mask=mask_blocks(visible, (16, 16)))
    key, value = call.key.clone(), call.value.clone()
    for tensor in (key, value):
        tensor[:, :, :16] = torch.nan
        tensor[:, :, 32:] = torch.nan
    result, findings = forward(replace(call, key=key, value=value), **_ONCE)
    assert not findings
    assert result.out.isfinite().all()
    assert torch.equal(result.out, forward(call, **_ONCE)[0].out)


def test_a_row_that_is_nan_leaves_the_other_rows() -> None:
    call = call_of("plain")
    query = call.query.clone()
    query[:, :, 5] = torch.nan
    result, _ = forward(replace(call, query=query), **_ONCE)
    whole, _ = forward(call, **_ONCE)
    assert result.out[:, :, 5].isnan().all()
    others = [row for row in range(query.shape[2]) if row != 5]
    assert torch.equal(result.out[:, :, others], whole.out[:, :, others])


def test_float64_of_a_program_is_refused() -> None:
    call = make_call(batch=1, score_mod=lambda s, b, h, q, k: (s.double() * 2).float())
    with pytest.raises(UnsupportedProgramError, match="float64, which Metal does not have"):
        forward_launches(call)


def test_more_captured_tensors_than_buffers_are_refused() -> None:
    tables = [torch.zeros(4) for _ in range(16)]
    call = make_call(batch=1, score_mod=lambda s, b, h, q, k: s + sum(t[h] for t in tables))
    with pytest.raises(ValueError, match="at most 15 captured tensors, got 16"):
        forward_launches(call)


# What is planted in the kernel, and by what it is found: a kind of finding, or wrong values.
_MUTANTS: Final = {
    "missing-barrier": ("threadgroup_barrier(mem_flags::mem_threadgroup);", "", "missing-barrier"),
    "row-beyond-the-end": (
        "row < end && at < columns",
        "row <= end && at < columns",
        "out-of-bounds",
    ),
    "key-beyond-the-end": ("k < stop &&", "k <= stop &&", "values"),
    "output-beyond-the-end": ("at < end && column", "at <= end && column", "out-of-bounds"),
    "no-rescale": ("weight * rescale + quad_sum(sum)", "weight + quad_sum(sum)", "values"),
    "wrong-head": ("first_head / int(sizes[kGroup])", "first_head % int(sizes[kGroup])", "values"),
    "simdgroup-barrier": (
        "    simdgroup_barrier(mem_flags::mem_threadgroup);\n\n    float own[8]",
        "    float own[8]",
        "missing-barrier",
    ),
}


@pytest.mark.parametrize("name", _MUTANTS)
def test_mutants_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, found_by = _MUTANTS[name]
    from torchyard_mps.attention import _forward

    source = _forward.metal_text("attention/tiles", "attention/forward")
    assert old in source
    monkeypatch.setattr(_forward, "metal_text", lambda *_: source.replace(old, new))
    call = make_call(batch=1, q_heads=4, kv_heads=2, q_length=40, kv_length=50, head_dim=8)
    result, findings = forward(call, **_ONCE)
    if found_by == "values":
        assert report(Ruler(call).compare(result))
    else:
        assert any(finding.startswith(f"{found_by}:") for finding in findings), findings
