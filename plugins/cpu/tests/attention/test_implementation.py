"""cpu.native as the registry sees it."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from typing import Any

import pytest
import torch

from torchyard import Platform, ReasonCode
from torchyard_attention.contract import (
    FORWARD,
    AttentionCall,
    AttentionRequest,
    MaskKind,
    ScoreKind,
)
from torchyard_cpu import _native, attention, device

ZEN4 = frozenset(
    {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16"}
)
SKYLAKE = ZEN4 - {"avx512_bf16"}
HASWELL = frozenset({"avx2", "fma", "f16c"})
REQUEST = AttentionRequest("cpu", "bfloat16", 1, 8, 2, 100, 100, 64, 64)


def platform_with(features: frozenset[str], machine: str = "x86_64") -> Platform:
    return Platform("Linux", machine, features, 2, "3.11.7", "2.13.0", frozenset({"cpu"}))


@pytest.mark.parametrize(
    ("platform", "isa"),
    [
        (platform_with(ZEN4), "avx512bf16"),
        (platform_with(SKYLAKE), "avx512"),
        (platform_with(HASWELL), "avx2"),
        (platform_with(frozenset()), "scalar"),
        (platform_with(frozenset({"asimd", "bf16"}), "aarch64"), "neonbf16"),
        (platform_with(frozenset({"asimd"}), "aarch64"), "neon"),
    ],
)
def test_every_processor_gets_its_best_instruction_set(platform: Platform, isa: str) -> None:
    verdict = attention.supports(REQUEST, platform)

    assert verdict.supported
    assert verdict.text == f"native kernel within {isa}"


@pytest.mark.parametrize(
    "changed",
    [
        {"mask": MaskKind.CAUSAL, "block_size": (128, 128)},
        {"mask": MaskKind.BLOCKS, "block_size": (1, 1)},
        {"dtype": "float32"},
        {"dtype": "float16"},
        {"head_dim": 1, "value_dim": 256},
        {"q_length": 0, "kv_length": 0},
        {"lse": True, "grad": True, "deterministic": True},
        {"max_scores": True},
    ],
)
def test_requests_within_the_limits_are_accepted(changed: dict[str, Any]) -> None:
    request = dataclasses.replace(REQUEST, **changed)

    assert attention.supports(request, platform_with(frozenset())).supported


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"device": "cuda"}, ReasonCode.DEVICE, "expected tensors on cpu, got cuda"),
        ({"dtype": "float64"}, ReasonCode.DTYPE, "float32, bfloat16 and float16; got float64"),
        ({"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD, "has no score_text"),
        (
            {"score": ScoreKind.GENERAL},
            ReasonCode.SCORE_MOD,
            "a pointwise score_mod, got a general",
        ),
        ({"head_dim": 257}, ReasonCode.HEAD_DIM, "head_dim: expected 1 to 256, got 257"),
        ({"value_dim": 0}, ReasonCode.HEAD_DIM, "value_dim: expected 1 to 256, got 0"),
        ({"unit_stride": False}, ReasonCode.LAYOUT, "a contiguous last dimension"),
    ],
)
def test_a_request_beyond_the_limits_is_refused_with_the_reason(
    changed: dict[str, Any], code: ReasonCode, text: str
) -> None:
    verdict = attention.supports(dataclasses.replace(REQUEST, **changed), platform_with(ZEN4))

    assert verdict.code is code
    assert text in verdict.text


def test_an_instruction_set_that_the_processor_lacks_is_refused() -> None:
    verdict = attention.supports(REQUEST, platform_with(HASWELL), isa="avx512")

    assert verdict.code is ReasonCode.ISA
    assert "lacks avx512bw, avx512dq, avx512f, avx512vl" in verdict.text


def test_an_unknown_instruction_set_is_refused_with_the_known_ones() -> None:
    verdict = attention.supports(REQUEST, platform_with(ZEN4), isa="sse9")

    assert verdict.code is ReasonCode.ISA
    assert "one of amx, avx512bf16, avx512, avx2, neonbf16, neon, scalar, got sse9" in verdict.text


def test_the_environment_holds_the_implementation_to_an_instruction_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHYARD_CPU_ISA", "scalar")
    (implementation,) = attention.torchyard_implementations(FORWARD)
    verdict = implementation.supports(REQUEST, platform_with(ZEN4))

    assert verdict.text == "native kernel within scalar"
    assert implementation.load()._kernels[torch.float32][0].endswith("_scalar")


def test_the_forward_allocates_what_the_contract_says() -> None:
    (implementation,) = attention.torchyard_implementations(FORWARD)
    query = torch.randn(2, 70, 4, 24).transpose(1, 2).requires_grad_()
    key, value = torch.randn(2, 2, 2, 90, 24)
    result = implementation.load()(
        AttentionCall(query, key, value, None, None, 0.3, lse=True, max_scores=False)
    )
    grouped = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    scores = query @ grouped[0].transpose(-1, -2) * 0.3

    assert result.out.is_contiguous()
    assert not result.out.requires_grad
    torch.testing.assert_close(result.out, (scores.softmax(-1) @ grouped[1]).detach())
    torch.testing.assert_close(result.lse, scores.logsumexp(-1).detach())


def test_the_lse_is_computed_only_where_asked_for() -> None:
    (implementation,) = attention.torchyard_implementations(FORWARD)
    query = torch.randn(1, 1, 3, 8)
    result = implementation.load()(
        AttentionCall(query, query, query, None, None, 1.0, lse=False, max_scores=False)
    )

    assert result.lse is None


def test_a_mask_of_the_contract_hides_keys() -> None:
    from plugins.cpu.tests.conftest import block_mask

    (implementation,) = attention.torchyard_implementations(FORWARD)
    query, key, value = torch.randn(3, 1, 2, 150, 16)
    visible = torch.ones(150, 150, dtype=torch.bool).tril()
    mask = block_mask(visible[None, None], (128, 128))
    result = implementation.load()(
        AttentionCall(query, key, value, None, mask, 0.25, lse=False, max_scores=False)
    )
    scores = (query @ key.transpose(-1, -2) * 0.25).masked_fill(~visible, -math.inf)

    torch.testing.assert_close(result.out, scores.softmax(-1) @ value)


def test_the_device_says_which_instruction_set_kernels_use() -> None:
    status = device.torchyard_probe_device("cpu")

    assert status.available
    assert status.text.startswith("kernels for ")
    assert all(name in status.text for name in _native.cpu_features())


def test_the_native_limit_is_the_stated_one() -> None:
    assert _native.MAX_HEAD_DIM == attention.MAX_HEAD_DIM


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("torchyard_cpu", "torch"),
        ("torchyard_cpu.device", "torch"),
        ("torchyard_cpu", "torchyard_cpu._native"),
        ("torchyard_cpu.device", "torchyard_cpu._native"),
        ("torchyard_cpu.attention", "torchyard_cpu._native"),
    ],
)
def test_an_import_loads_no_more_than_it_needs(imported: str, absent: str) -> None:
    code = f"import sys, {imported}\nassert {absent!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
