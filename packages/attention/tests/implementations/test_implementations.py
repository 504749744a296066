"""Every implementation that the registry offers for cpu is right on the grid, or says why not.

What else the contract asks of it, the conformance kit holds it to.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import pytest
import torch
from torch import Tensor

from torchyard import Implementation, ReasonCode, registry
from torchyard_attention.cases import CASES, Case
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionRequest,
    AttentionResult,
    MaskKind,
    ScoreKind,
)
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call, request_of
from torchyard_attention.tolerance import GradientRuler, Ruler, report

# These compile for seconds per call and return out alone, so each case is also asked for without
# the rest: a few of them here, all in the sweep.
COMPILED: Final = frozenset({"attention.flex"})
COMPILED_CASES: Final = frozenset({"score-relative_bias-out"})
OUT_ONLY: Final = {
    f"{name}-out": replace(
        case, name=f"{name}-out", sizes={**case.sizes, "lse": False, "max_scores": False}
    )
    for name, case in CASES.items()
}


@cache
def ruler(name: str) -> Ruler:
    """Return a case's ruler, made once for all implementations."""
    return Ruler({**CASES, **OUT_ONLY}[name].call())


@cache
def given_to_backward(name: str, with_lse: bool) -> tuple[AttentionResult, Tensor, Tensor | None]:
    """Return a forward's result, as any implementation may have returned it, and cotangents."""
    call = CASES[name].call()
    forward = reference_forward(call)
    generator = torch.Generator().manual_seed(3)
    grad_out = torch.randn(forward.out.shape, generator=generator).to(call.query.dtype)
    grad_lse = torch.randn(forward.lse.shape, generator=generator).to(forward.lse.dtype)
    return forward, grad_out, grad_lse if with_lse else None


@cache
def gradient_ruler(name: str, with_lse: bool) -> GradientRuler:
    """Return a case's ruler for gradients, made once for all implementations."""
    _, grad_out, grad_lse = given_to_backward(name, with_lse)
    return GradientRuler(CASES[name].call(), grad_out, grad_lse)


def offered(contract: str) -> list[Implementation]:
    """Return what the registry offers on cpu; an empty answer would test nothing."""
    registry_ = registry()
    found, _ = registry_.implementations(registry_.contract(contract), "cpu")
    assert {"attention.tiled", "attention.reference"} <= {item.name for item in found}
    return sorted(found, key=lambda item: item.name)


def pairs(contract: str) -> list[object]:
    """Return (implementation, case) parameters, those that compile marked as slow."""
    return [
        pytest.param(
            item,
            case,
            id=f"{item.name}-{case.name}",
            marks=[pytest.mark.sweep] if item.name in COMPILED else [],
        )
        for item in offered(contract)
        for case in (*CASES.values(), *(OUT_ONLY.values() if item.name in COMPILED else ()))
    ]


def expected_refusal(name: str, request: AttentionRequest, contract: str) -> ReasonCode | None:
    """Return why one of our own implementations must refuse; None where it must not."""
    if name in {"attention.tiled", "attention.reference"}:
        return None
    sizes = (request.batch, request.q_length, request.kv_length)
    if name == "attention.sdpa":
        if request.head_dim != request.value_dim:
            return ReasonCode.HEAD_DIM
        if request.dropout:
            return ReasonCode.DROPOUT
        if request.score is not ScoreKind.NONE:
            return ReasonCode.SCORE_MOD
        if request.mask is MaskKind.BLOCKS:
            return ReasonCode.MASK
        if request.max_scores:
            return ReasonCode.OUTPUT
        return ReasonCode.SHAPE if 0 in sizes else None
    assert name == "attention.flex", f"{name}: say here what it refuses"
    if contract == BACKWARD:
        return ReasonCode.DEVICE
    if request.dtype == "float64":
        return ReasonCode.DTYPE
    if request.dropout:
        return ReasonCode.DROPOUT
    if request.lse or request.max_scores:
        return ReasonCode.OUTPUT
    if request.grad:
        return ReasonCode.GRAD
    return ReasonCode.SHAPE if 0 in sizes else None


def accepts(item: Implementation, request: AttentionRequest, contract: str) -> bool:
    """Ask for a verdict and check it against what is known of the implementation."""
    verdict = item.verdict(request, registry().platform)
    if item.plugin == "attention":
        assert verdict.code == expected_refusal(item.name, request, contract), verdict
    if not verdict.supported:
        assert verdict.text
        assert verdict.hint or item.plugin != "attention"
    return verdict.supported


@pytest.mark.parametrize(("item", "case"), pairs(FORWARD))
def test_outputs_are_as_near_to_the_reference_as_naive_ones(
    item: Implementation, case: Case
) -> None:
    call = case.call()
    if not accepts(item, case.request(call), FORWARD):
        return

    problems = report(ruler(case.name).compare(item.load()(call)))

    assert not problems, problems


@pytest.mark.parametrize(("item", "case"), pairs(BACKWARD))
def test_gradients_are_as_near_to_the_reference_as_naive_ones(
    item: Implementation, case: Case
) -> None:
    call = case.call()
    # attention.sdpa's own op takes no gradient of the lse.
    with_lse = item.name != "attention.sdpa"
    if not call.lse or not accepts(item, case.request(call, grad=True), BACKWARD):
        return
    forward, grad_out, grad_lse = given_to_backward(case.name, with_lse)

    gradients = item.load()(call, forward.out, forward.lse, grad_out, grad_lse)

    problems = report(gradient_ruler(case.name, with_lse).compare(gradients))
    assert not problems, problems


@pytest.mark.parametrize("item", offered(FORWARD), ids=lambda item: item.name)
def test_rows_hidden_by_the_lowest_finite_score_stay_apart(item: Implementation) -> None:
    lowest = torch.finfo(torch.float32).min

    def mostly_lowest(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.where((k < q) & (q > 3), score, lowest)

    call = make_call(q_length=20, score_mod=mostly_lowest)
    if item.name in COMPILED or not accepts(item, request_of(call), FORWARD):
        return

    out = item.load()(call).out

    # Rows 0 to 3 have one and the same score everywhere: the mean of all values.
    mean = call.value.mean(dim=2, keepdim=True).expand(2, 4, 4, 32)
    torch.testing.assert_close(out[:, :, :4], mean)
    assert out.isfinite().all()
