"""Verdicts of torch's fused kernels follow from request and machine alone; each gate has a side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.cuda.tests.machines import NVIDIA, OTHERS, machine
from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import AttentionRequest, MaskKind, ScoreKind
from torchyard_cuda.attention import FUSED

_REQUEST: Final = AttentionRequest("cuda", "bfloat16", 1, 32, 32, 2048, 2048, 128, 128)


def _judged(kernel: str, platform: Platform | None = None, **changes: Any) -> Verdict:
    return FUSED[kernel](replace(_REQUEST, **changes), platform or machine())


@pytest.mark.parametrize("kernel", FUSED)
@pytest.mark.parametrize("name", NVIDIA)
def test_training_in_bfloat16_is_supported(kernel: str, name: str) -> None:
    for mask in (MaskKind.NONE, MaskKind.CAUSAL):
        verdict = _judged(kernel, machine(name), mask=mask, grad=True)
        assert verdict.supported, verdict.text


@pytest.mark.parametrize("kernel", FUSED)
@pytest.mark.parametrize("name", OTHERS)
def test_no_other_machine_is_supported(kernel: str, name: str) -> None:
    assert _judged(kernel, machine(name)).code in {ReasonCode.DEVICE, ReasonCode.ISA}


@pytest.mark.parametrize("kernel", FUSED)
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"device": "cpu"}, ReasonCode.DEVICE),
        ({"dtype": "float64"}, ReasonCode.DTYPE),
        ({"dropout": True}, ReasonCode.DROPOUT),
        ({"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD),
        ({"score": ScoreKind.GENERAL}, ReasonCode.SCORE_MOD),
        ({"mask": MaskKind.BLOCKS, "block_size": (128, 128)}, ReasonCode.MASK),
        ({"page_size": 16}, ReasonCode.LAYOUT),
        ({"max_scores": True}, ReasonCode.OUTPUT),
        ({"q_length": 0}, ReasonCode.SHAPE),
        ({"kv_length": 0}, ReasonCode.SHAPE),
        ({"head_dim": 127, "value_dim": 127}, ReasonCode.HEAD_DIM),
    ],
)
def test_what_no_kernel_computes(kernel: str, changes: dict[str, Any], code: ReasonCode) -> None:
    verdict = _judged(kernel, **changes)
    assert verdict.code == code
    assert verdict.text


# Kernel, facts of the machine, the request, the refusal's code; None: supported.
_SIDES: Final[list[tuple[str, dict[str, Any], dict[str, Any], ReasonCode | None]]] = [
    ("cudnn", {}, {"dtype": "float32"}, ReasonCode.DTYPE),
    ("flash", {}, {"dtype": "float32"}, ReasonCode.DTYPE),
    ("efficient", {}, {"dtype": "float32"}, None),
    ("efficient", {"architecture": "sm_75"}, {"dtype": "float32"}, None),
    ("efficient", {"architecture": "sm_75"}, {}, ReasonCode.DTYPE),
    ("efficient", {"architecture": "sm_37"}, {"dtype": "float32"}, ReasonCode.ISA),
    ("flash", {"architecture": "sm_75"}, {"dtype": "float16"}, ReasonCode.ISA),
    ("cudnn", {"architecture": "sm_75"}, {"dtype": "float16"}, ReasonCode.ISA),
    ("cudnn", {"architecture": "sm_121"}, {}, None),
    ("cudnn", {"architecture": "sm_130"}, {}, ReasonCode.ISA),
    ("cudnn", {"architecture": "gfx942"}, {}, ReasonCode.ISA),
    ("cudnn", {"without": "cudnn"}, {}, ReasonCode.DEPENDENCY),
    ("flash", {"without": "cudnn"}, {}, None),
    ("cudnn", {"cudnn": "8.9.7"}, {}, ReasonCode.VERSION),
    ("cudnn", {"cudnn": "9.0.0"}, {}, None),
    ("cudnn", {}, {"deterministic": True}, ReasonCode.DETERMINISM),
    ("flash", {}, {"deterministic": True, "grad": True}, None),
    ("efficient", {}, {"deterministic": True}, None),
    ("efficient", {}, {"deterministic": True, "grad": True}, ReasonCode.DETERMINISM),
    ("cudnn", {}, {"kv_length": 1}, ReasonCode.SHAPE),
    ("cudnn", {"architecture": "sm_80"}, {"q_length": 1}, None),
    ("cudnn", {"architecture": "sm_90"}, {"q_length": 1}, ReasonCode.PURPOSE),
    ("cudnn", {"architecture": "sm_90"}, {"q_length": 2}, None),
    ("cudnn", {"architecture": "sm_90"}, {"q_length": 1, "grad": True}, None),
    # FlashAttention-2 takes no such heads.
    ("cudnn", {"architecture": "sm_90"}, {"q_length": 1, "value_dim": 64}, None),
    ("cudnn", {}, {"q_length": 1, "mask": MaskKind.CAUSAL}, ReasonCode.SHAPE),
    ("flash", {}, {"kv_length": 1}, None),
    ("cudnn", {}, {"batch": 70_000}, ReasonCode.SHAPE),
    ("cudnn", {}, {"q_heads": 70_000}, ReasonCode.SHAPE),
    ("flash", {}, {"q_heads": 70_000}, None),
    ("efficient", {}, {"kv_heads": 8}, ReasonCode.SHAPE),
    ("flash", {}, {"kv_heads": 8}, None),
    ("cudnn", {}, {"kv_heads": 8}, None),
    ("cudnn", {}, {"head_dim": 124, "value_dim": 128}, ReasonCode.HEAD_DIM),
    ("cudnn", {}, {"head_dim": 64, "value_dim": 128}, None),
    ("flash", {}, {"head_dim": 64, "value_dim": 128}, ReasonCode.HEAD_DIM),
    ("efficient", {}, {"head_dim": 64, "value_dim": 128}, None),
    ("efficient", {}, {"head_dim": 132, "dtype": "float32"}, None),
    ("efficient", {}, {"head_dim": 132}, ReasonCode.HEAD_DIM),
    ("cudnn", {"cudnn": "9.10.2"}, {"head_dim": 192}, ReasonCode.HEAD_DIM),
    ("cudnn", {"cudnn": "9.11.0"}, {"head_dim": 192}, None),
    ("cudnn", {"cudnn": "9.11.0"}, {"head_dim": 192, "value_dim": 192}, ReasonCode.HEAD_DIM),
    ("cudnn", {"cudnn": "9.22.0"}, {"head_dim": 256, "value_dim": 256}, ReasonCode.HEAD_DIM),
    ("cudnn", {"cudnn": "9.22.1"}, {"head_dim": 256, "value_dim": 256}, None),
    ("cudnn", {"cudnn": "9.22.1"}, {"head_dim": 160, "value_dim": 160}, None),
    (
        "cudnn",
        {"cudnn": "9.22.1"},
        {"head_dim": 160, "value_dim": 160, "grad": True},
        ReasonCode.HEAD_DIM,
    ),
    ("cudnn", {"cudnn": "9.22.1"}, {"head_dim": 256, "value_dim": 256, "grad": True}, None),
    ("cudnn", {"cudnn": "9.22.1"}, {"head_dim": 192, "grad": True}, None),
    (
        "cudnn",
        {"cudnn": "9.22.1", "architecture": "sm_80"},
        {"head_dim": 256, "value_dim": 256},
        ReasonCode.HEAD_DIM,
    ),
    (
        "cudnn",
        {"cudnn": "9.22.1", "architecture": "sm_107"},
        {"head_dim": 192},
        ReasonCode.HEAD_DIM,
    ),
    ("flash", {}, {"head_dim": 256, "value_dim": 256, "grad": True}, None),
    ("flash", {}, {"head_dim": 264, "value_dim": 264}, ReasonCode.HEAD_DIM),
    ("flash", {"architecture": "sm_89"}, {"head_dim": 200, "value_dim": 200}, None),
    (
        "flash",
        {"architecture": "sm_89"},
        {"head_dim": 200, "value_dim": 200, "grad": True},
        ReasonCode.HEAD_DIM,
    ),
    (
        "flash",
        {"architecture": "sm_120"},
        {"head_dim": 224, "value_dim": 224, "grad": True},
        ReasonCode.HEAD_DIM,
    ),
    ("flash", {"architecture": "sm_89"}, {"head_dim": 256, "value_dim": 256, "grad": True}, None),
]


@pytest.mark.parametrize(("kernel", "facts", "changes", "code"), _SIDES)
def test_each_gate_has_two_sides(
    kernel: str, facts: dict[str, Any], changes: dict[str, Any], code: ReasonCode | None
) -> None:
    verdict = _judged(kernel, machine(**facts), **changes)
    assert verdict.code == code, verdict.text


_REQUESTS = st.builds(
    AttentionRequest,
    device=st.sampled_from(["cuda", "cpu", "xpu"]),
    dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    batch=st.integers(0, 100_000),
    q_heads=st.integers(1, 100_000),
    kv_heads=st.integers(1, 100_000),
    q_length=st.integers(0, 1 << 20),
    kv_length=st.integers(0, 1 << 20),
    head_dim=st.integers(0, 300),
    value_dim=st.integers(0, 300),
    score=st.sampled_from(ScoreKind),
    mask=st.sampled_from(MaskKind),
    lse=st.booleans(),
    max_scores=st.booleans(),
    grad=st.booleans(),
    deterministic=st.booleans(),
    page_size=st.sampled_from([0, 16]),
    dropout=st.booleans(),
)
_MACHINES = st.builds(
    lambda name, architecture, cudnn: machine(name, architecture=architecture, cudnn=cudnn),
    st.sampled_from([*NVIDIA, *OTHERS]),
    st.sampled_from(["", "sm_70", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942", "x"]),
    st.sampled_from(["", "8.9.7", "9.8.0", "9.20.0", "9.30.1", "unknown"]),
)


@given(_REQUESTS, _MACHINES)
def test_any_request_on_any_machine_has_a_verdict(
    request: AttentionRequest, platform: Platform
) -> None:
    for supports in FUSED.values():
        verdict = supports(request, platform)
        assert verdict == supports(request, platform)
        assert verdict.text
        if not verdict.supported:
            continue
        # What a kernel takes without gradients, in other runs' bits, is no less with fewer demands.
        assert supports(replace(request, grad=False, deterministic=False), platform).supported
        assert request.score is ScoreKind.NONE
        assert request.mask is not MaskKind.BLOCKS
        assert platform.accelerators[0].architecture.startswith("sm_")
