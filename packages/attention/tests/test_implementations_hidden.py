"""What a row does not see does not reach it, whatever it holds; what overflows stays apart."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from torchyard import Implementation, registry
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionCall
from torchyard_attention.testing import make_call, request_of
from torchyard_attention.tolerance import GradientRuler, Ruler, report

POISONS = (math.nan, math.inf, -math.inf)


def offered(contract: str) -> list[Implementation]:
    """Return what the registry offers on cpu, less what compiles for seconds."""
    registry_ = registry()
    found, _ = registry_.implementations(registry_.contract(contract), "cpu")
    assert found
    return [item for item in found if item.name != "attention.flex"]


def half_hidden(causal: bool) -> tuple[AttentionCall, Tensor]:
    """Return a call and where a row of blocks sees only some keys; the last 9 keys are hidden."""
    q, k = torch.arange(150).unsqueeze(1), torch.arange(160)
    visible = (q >= k) if causal else (q >= k) & (q - k < 70) & (q % 7 != 0)
    return make_call(q_length=150, kv_length=160, visible=visible, kv_heads=2), visible


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "window"])
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("item", offered(FORWARD), ids=lambda item: item.name)
def test_a_hidden_key_or_value_that_is_not_finite_reaches_no_row(
    item: Implementation, poison: float, causal: bool
) -> None:
    call, _ = half_hidden(causal)
    if not item.verdict(request_of(call, causal=causal), registry().platform).supported:
        return
    key, value = call.key.clone(), call.value.clone()
    key[:, :, 150:156] = poison
    value[:, :, 153:] = poison

    result = item.load()(replace(call, key=key, value=value))

    problems = report(Ruler(call).compare(result))
    assert not problems, problems


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "window"])
@pytest.mark.parametrize("item", offered(FORWARD), ids=lambda item: item.name)
def test_a_value_that_is_nan_reaches_the_rows_that_see_it_and_no_other(
    item: Implementation, causal: bool
) -> None:
    call, visible = half_hidden(causal)
    if not item.verdict(request_of(call, causal=causal), registry().platform).supported:
        return
    value = call.value.clone()
    value[:, :, 40] = math.nan

    out = item.load()(replace(call, value=value)).out

    seen = visible[:, 40].expand(2, 4, 150)
    assert out[seen].isnan().all()
    assert out[~seen].isfinite().all()


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "window"])
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("item", offered(BACKWARD), ids=lambda item: item.name)
def test_a_hidden_key_or_value_that_is_not_finite_reaches_no_gradient(
    item: Implementation, poison: float, causal: bool
) -> None:
    call, _ = half_hidden(causal)
    request = request_of(call, causal=causal, grad=True)
    if not item.verdict(request, registry().platform).supported:
        return
    key, value = call.key.clone(), call.value.clone()
    key[:, :, 150:156] = poison
    value[:, :, 153:] = poison
    forward = next(it for it in offered(FORWARD) if it.name == "attention.tiled").load()(call)
    grad_out = torch.randn(call.query.shape, generator=torch.Generator().manual_seed(1))

    gradients = item.load()(
        replace(call, key=key, value=value), forward.out, forward.lse, grad_out, None
    )

    problems = report(GradientRuler(call, grad_out).compare(gradients))
    assert not problems, problems


@pytest.mark.parametrize("item", offered(FORWARD), ids=lambda item: item.name)
def test_rows_hidden_by_the_lowest_finite_score_stay_apart(item: Implementation) -> None:
    lowest = torch.finfo(torch.float32).min

    def mostly_lowest(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.where((k < q) & (q > 3), score, lowest)

    call = make_call(q_length=20, score_mod=mostly_lowest)
    if not item.verdict(request_of(call), registry().platform).supported:
        return

    out = item.load()(call).out

    # Rows 0 to 3 have one and the same score everywhere: the mean of all values.
    mean = call.value.mean(dim=2, keepdim=True).expand(2, 4, 4, 32)
    torch.testing.assert_close(out[:, :, :4], mean)
    assert out.isfinite().all()
