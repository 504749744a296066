"""What a row does not see never reaches it in Metal, NaN and infinities included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import Tensor

from plugins.mps.tests.attention.forward_runs import forward
from plugins.mps.tests.attention.gradient_runs import given_for, gradients
from torchyard_attention.cases import MASKS
from torchyard_attention.contract import AttentionCall
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_attention.testing import make_call, traced_score_mod

_ONCE: Final[dict[str, Any]] = {"orders": 1, "address_sanitizer": False}
_LENGTH: Final = 50
_POISONS: Final = (math.nan, math.inf, -math.inf)
# Blocks of 16 are hidden, partial and whole; one of 64 has tiles that are seen in part.
_BLOCKS: Final = ((16, 16), (64, 64), (20, 13))


def _narrow() -> Tensor:
    distance = torch.arange(_LENGTH)[:, None] - torch.arange(_LENGTH)
    return ((distance >= 0) & (distance < 18))[None, None]


def _call(visible: Tensor, blocks: tuple[int, int]) -> AttentionCall:
    return make_call(
        batch=1,
        q_heads=2,
        kv_heads=1,
        q_length=_LENGTH,
        head_dim=16,
        visible=visible,
        block_size=blocks,
        max_scores=True,
    )


def _poisoned(tensor: Tensor, poison: float) -> Tensor:
    tensor = tensor.clone()
    tensor[:, :, (5, _LENGTH - 1), 3] = poison
    return tensor


def _assert_same(got: Tensor, wanted: Tensor) -> None:
    for poison in _POISONS:
        one, other = (t.isnan() if math.isnan(poison) else t == poison for t in (got, wanted))
        assert torch.equal(one, other), f"{poison} at {int(one.sum())}, not {int(other.sum())}"
    finite = wanted.isfinite()
    assert finite.any()
    torch.testing.assert_close(got[finite], wanted[finite], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("poison", _POISONS)
@pytest.mark.parametrize("given", ["key", "value"])
@pytest.mark.parametrize("blocks", _BLOCKS, ids=str)
def test_what_a_block_hides_reaches_no_row(
    blocks: tuple[int, int], given: str, poison: float
) -> None:
    call = _call(_narrow(), blocks)
    poisoned = replace(call, **{given: _poisoned(getattr(call, given), poison)})
    result, findings = forward(poisoned, **_ONCE)
    assert not findings
    wanted = reference_forward(poisoned)
    _assert_same(result.out, wanted.out)
    assert result.lse is not None
    assert wanted.lse is not None
    _assert_same(result.lse, wanted.lse)


def test_rows_that_see_nothing_stay_empty_beside_nan() -> None:
    call = _call(MASKS["empty_rows"](1, 2, _LENGTH, _LENGTH), (32, 16))
    poisoned = replace(call, value=_poisoned(call.value, math.nan))
    result, findings = forward(poisoned, **_ONCE)
    assert not findings
    _assert_same(result.out, reference_forward(poisoned).out)


def test_what_a_mask_program_hides_reaches_no_row() -> None:
    call = _call(_narrow(), (16, 16))
    mod = traced_score_mod(lambda s, b, h, q, k: (q >= k) & (q - k < 18))
    poisoned = replace(call, value=_poisoned(call.value, math.nan))
    result, findings = forward(replace(poisoned, mask=None), mod, **_ONCE)
    assert not findings
    _assert_same(result.out, reference_forward(poisoned).out)


@pytest.mark.parametrize(
    ("target", "blocks", "poison"),
    [
        ("key", (16, 16), math.nan),
        ("value", (20, 13), math.nan),
        ("query", (64, 64), math.inf),
        ("grad_out", (16, 16), math.nan),
        *(
            pytest.param(target, blocks, poison, marks=pytest.mark.sweep)
            for target in ("key", "value", "query", "grad_out")
            for blocks in _BLOCKS
            for poison in _POISONS
        ),
    ],
)
def test_what_a_block_hides_reaches_no_gradient(
    target: str, blocks: tuple[int, int], poison: float
) -> None:
    call = _call(_narrow(), blocks)
    if target != "grad_out":
        call = replace(call, **{target: _poisoned(getattr(call, target), poison)})
    out, lse, grad_out, _ = given_for(call)
    if target == "grad_out":
        grad_out = _poisoned(grad_out, poison)
    inputs = (out, lse, grad_out, None)
    got, wanted = gradients(call, inputs), reference_backward(call, *inputs)
    for name in ("query", "key", "value"):
        # Whether a sum of infinities is one or NaN depends on how it is put together.
        one, other = (
            t.where(t.isfinite(), math.nan) for t in (getattr(got, name), getattr(wanted, name))
        )
        assert torch.equal(one.isnan(), other.isnan()), name
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5, equal_nan=True)
    assert any(getattr(wanted, name).isfinite().any() for name in ("query", "key", "value"))
