"""cpu.native's backward as the registry and flex_attention see it."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from torchyard import Platform, ReasonCode, registry
from torchyard_attention import create_block_mask, flex_attention
from torchyard_attention.contract import (
    BACKWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    MaskKind,
    ScoreKind,
)
from torchyard_cpu import attention

REQUEST = AttentionRequest("cpu", "bfloat16", 1, 8, 2, 100, 100, 64, 64, lse=True, grad=True)
ANYWHERE = Platform("Linux", "x86_64", frozenset(), 2, "3.11.7", "2.13.0", frozenset({"cpu"}))


def backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    (implementation,) = attention.torchyard_implementations(BACKWARD)
    gradients = implementation.load()(call, out, lse, grad_out, grad_lse)
    assert isinstance(gradients, AttentionGradients)
    return gradients


@pytest.mark.parametrize("unit_stride", [True, False])
@pytest.mark.parametrize("mask", list(MaskKind))
@pytest.mark.parametrize("dtype", attention.DTYPES)
def test_the_backward_is_supported_on_every_processor(
    dtype: str, mask: MaskKind, unit_stride: bool
) -> None:
    request = dataclasses.replace(REQUEST, dtype=dtype, mask=mask, unit_stride=unit_stride)

    assert attention.supports_backward(request, ANYWHERE).supported


def test_a_score_mod_is_judged_by_its_program() -> None:
    known = dataclasses.replace(
        REQUEST, score=ScoreKind.POINTWISE, score_text='["mul",["s",2.0],{}]\n"%0"'
    )
    unknown = dataclasses.replace(known, score_text='["erfinv",["s"],{}]\n"%0"')

    assert attention.supports_backward(known, ANYWHERE).supported
    refusal = attention.supports_backward(unknown, ANYWHERE)
    assert refusal.code is ReasonCode.SCORE_MOD
    assert "erfinv" in refusal.text


def test_the_backward_is_the_first_choice_on_the_cpu() -> None:
    decision = registry().decide(BACKWARD, REQUEST)

    assert decision.chosen is not None
    assert decision.chosen.name == "cpu.native"


def test_the_environment_holds_the_backward_to_an_instruction_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHYARD_CPU_ISA", "scalar")
    (implementation,) = attention.torchyard_implementations(BACKWARD)

    assert implementation.name == "cpu.native"
    assert implementation.load()._kernels[torch.bfloat16][0].endswith("_scalar")


@pytest.mark.parametrize("masked", [False, True])
def test_training_through_flex_attention_gives_the_exact_gradients(masked: bool) -> None:
    query = torch.randn(2, 70, 4, 24).transpose(1, 2)
    key, value = torch.randn(2, 2, 2, 90, 24)
    weight, lse_weight = torch.randn(2, 4, 70, 24), torch.randn(2, 4, 70)
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 70, 90) if masked else None

    def gradients(dtype: torch.dtype, implementation: str | None) -> tuple[Tensor, ...]:
        leaves = [t.to(dtype).requires_grad_() for t in (query, key, value)]
        out, lse = flex_attention(
            *leaves,
            block_mask=mask,
            enable_gqa=True,
            return_lse=True,
            implementation=implementation,
        )
        return torch.autograd.grad([out, lse], leaves, [weight.to(dtype), lse_weight.to(lse.dtype)])

    ours = gradients(torch.float32, "cpu.native")
    exact = gradients(torch.float64, "attention.reference")
    for got, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["expanded", "transposed", "sliced", "contiguous"])
def test_strides_of_inputs_and_gradients_change_no_bit(layout: str) -> None:
    def laid_out(tensor: Tensor) -> Tensor:
        if layout == "transposed":
            return tensor.mT.contiguous().mT
        if layout == "sliced":
            return torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]]
        return tensor

    query, key, value = torch.randn(3, 1, 2, 50, 16)
    grad_out, grad_lse = torch.randn(1, 2, 50, 16), torch.randn(1, 2, 50)
    if layout == "expanded":
        grad_out = torch.ones(()).expand(grad_out.shape)
        grad_lse = torch.ones(()).expand(grad_lse.shape)
    scores = query @ key.mT
    out, lse = scores.softmax(-1) @ value, scores.logsumexp(-1)

    def call(q: Tensor, k: Tensor, v: Tensor) -> AttentionCall:
        return AttentionCall(q, k, v, None, None, 1.0, lse=True, max_scores=False)

    plain = backward(call(query, key, value), out, lse, grad_out.contiguous(), grad_lse.clone())
    strided = backward(
        call(laid_out(query), laid_out(key), laid_out(value)),
        laid_out(out),
        lse.mT.contiguous().mT,
        laid_out(grad_out),
        grad_lse,
    )
    for name in ("query", "key", "value"):
        assert torch.equal(getattr(plain, name), getattr(strided, name))
        assert getattr(strided, name).is_contiguous()
