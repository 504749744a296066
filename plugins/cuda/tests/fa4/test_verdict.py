"""Verdicts of FlashAttention-4 follow from request and machine; its absence is one of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plugins.cuda.tests.machines import NVIDIA, OTHERS, machine
from torchyard import ReasonCode, Registry, Verdict
from torchyard_attention.contract import BACKWARD, FORWARD, AttentionRequest, MaskKind, ScoreKind
from torchyard_attention.testing import traced_mask_mod, traced_score_mod
from torchyard_cuda.attention import FA4
from torchyard_cuda.fa4._known import known
from torchyard_cuda.fa4._verdict import supports

(_VERSION,) = known()
_REQUEST: Final = AttentionRequest("cuda", "bfloat16", 1, 32, 8, 2048, 2048, 128, 128)
_PROGRAM: Final = {
    "score": ScoreKind.POINTWISE,
    "score_text": traced_score_mod(lambda s, b, h, q, k: torch.tanh(s) + (q - k)).text,
}
_MANY_HEADS: Final = {"kv_heads": 32, "grad": True}
_OF_HEADS: Final = {
    "score": ScoreKind.POINTWISE,
    "score_text": traced_score_mod(lambda s, b, h, q, k: s * (h + 1)).text,
}
_MASK: Final = {
    "mask": MaskKind.BLOCKS,
    "block_size": (128, 128),
    "mask_text": traced_mask_mod(lambda b, h, q, k: q - k < 64 + h, (1, 8, 1, 1)).source.text,
}
_TALL: Final = {**_MASK, "block_size": (256, 128)}
_OF_KEYS: Final = {
    "score": ScoreKind.POINTWISE,
    "score_text": traced_score_mod(lambda s, b, h, q, k: torch.tanh(s) * (k % 2 + b)).text,
}


def _judged(facts: dict[str, Any], **changes: Any) -> Verdict:
    platform = machine(**{"flash_attn_4": _VERSION, **facts})
    request = replace(_REQUEST, **changes)
    return supports(request, platform, backward=request.grad)


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "gb300"])
def test_machines_that_it_is_made_for(name: str) -> None:
    masks = _TALL, {**_TALL, "grad": True}, {**_TALL, **_PROGRAM}
    for changes in ({}, {"grad": True}, {"mask": MaskKind.CAUSAL}, _PROGRAM, *masks):
        verdict = _judged({"name": name}, **changes)
        assert verdict.supported, verdict.text


@pytest.mark.parametrize(
    ("facts", "changes", "code"),
    [
        ({"without": "flash-attn-4", "flash_attn_4": "0"}, {}, ReasonCode.VERSION),
        ({"flash_attn_4": "4.0.0b18"}, {}, ReasonCode.VERSION),
        ({"without": "triton"}, {}, ReasonCode.DEPENDENCY),
        ({"name": "rtx5090"}, {}, ReasonCode.ISA),
        ({"name": "a100"}, {}, ReasonCode.ISA),
        ({}, {"device": "cpu"}, ReasonCode.DEVICE),
        ({}, {"dtype": "float32"}, ReasonCode.DTYPE),
        ({}, {"dropout": True}, ReasonCode.DROPOUT),
        ({}, {**_MASK, "mask_text": ""}, ReasonCode.MASK),
        ({}, _MASK, None),
        ({}, {**_MASK, "grad": True}, None),
        ({}, {**_MASK, "block_size": (384, 128)}, None),
        ({}, {**_MASK, "block_size": (64, 128)}, ReasonCode.MASK),
        ({}, {**_MASK, "block_size": (128, 64)}, ReasonCode.MASK),
        ({"name": "b200"}, _MASK, ReasonCode.MASK),
        ({"name": "b200"}, {**_TALL, "grad": True}, None),
        ({}, {**_MASK, "head_dim": 192}, ReasonCode.HEAD_DIM),
        ({}, {**_MASK, "deterministic": True, "grad": True}, ReasonCode.DETERMINISM),
        ({}, {**_MASK, "deterministic": True}, None),
        ({}, {"page_size": 16}, ReasonCode.LAYOUT),
        ({}, {"max_scores": True}, ReasonCode.OUTPUT),
        ({}, {"q_length": 0}, ReasonCode.SHAPE),
        ({}, {"score": ScoreKind.GENERAL}, ReasonCode.SCORE_MOD),
        ({}, {"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD),
        ({}, {**_PROGRAM, **_MANY_HEADS, "captured_grad": (True,)}, ReasonCode.GRAD),
        ({}, {**_PROGRAM, "captured_grad": (True,), "grad": False}, None),
        ({}, {**_PROGRAM, "grad": True}, ReasonCode.SCORE_MOD),
        ({}, {**_PROGRAM, **_MANY_HEADS}, None),
        ({}, {**_OF_HEADS, "grad": True}, ReasonCode.SCORE_MOD),
        ({}, {**_OF_KEYS, "grad": True}, None),
        ({}, _OF_HEADS, None),
        ({"name": "b200"}, {**_OF_HEADS, "grad": True}, None),
        ({}, {**_PROGRAM, "deterministic": True, "grad": True}, ReasonCode.DETERMINISM),
        ({}, {"deterministic": True, "grad": True}, None),
        ({}, {"head_dim": 132}, ReasonCode.HEAD_DIM),
        ({}, {"head_dim": 256, "value_dim": 256}, None),
        ({}, {"head_dim": 256, "value_dim": 256, "grad": True}, ReasonCode.HEAD_DIM),
        ({}, {"head_dim": 64, "grad": True}, ReasonCode.HEAD_DIM),
        ({}, {"head_dim": 64, "kv_heads": 32, "grad": True}, None),
        ({}, {"head_dim": 264}, ReasonCode.HEAD_DIM),
        ({"name": "b200"}, {"head_dim": 192}, None),
        ({"name": "b200"}, {"head_dim": 192, "value_dim": 192}, ReasonCode.HEAD_DIM),
        ({"name": "b200"}, {"head_dim": 256, "value_dim": 256, "grad": True}, None),
        (
            {"name": "b200"},
            {"head_dim": 256, "value_dim": 256, **_PROGRAM},
            ReasonCode.HEAD_DIM,
        ),
    ],
)
def test_each_limit(facts: dict[str, Any], changes: dict[str, Any], code: str | None) -> None:
    verdict = _judged(facts, **changes)
    assert verdict.code == code, verdict.text


def test_a_program_without_a_form_is_refused_by_name() -> None:
    text = traced_score_mod(lambda s, b, h, q, k: torch.lgamma(s)).text
    verdict = _judged({}, score=ScoreKind.POINTWISE, score_text=text)
    assert verdict.code == ReasonCode.SCORE_MOD
    assert "lgamma" in verdict.text


@pytest.mark.parametrize(
    ("mask_mod", "named"),
    [
        (lambda b, h, q, k: (q << 1) > k, "shl"),
        (lambda b, h, q, k: torch.sqrt(q * 1.0) > 3.0, "whose rounding decides"),
    ],
)
def test_a_masks_program_without_a_form_is_refused_by_name(mask_mod: Any, named: str) -> None:
    source = traced_mask_mod(mask_mod, (1, 1, 1, 1)).source
    assert source is not None
    verdict = _judged({}, **{**_MASK, "mask_text": source.text})
    assert verdict.code == ReasonCode.MASK
    assert named in verdict.text


def test_the_hint_names_the_block_size_that_is_taken() -> None:
    assert "BLOCK_SIZE=(256, 128)" in _judged({"name": "b200"}, **_MASK).hint


@pytest.mark.parametrize("name", [*NVIDIA, *OTHERS])
def test_its_absence_is_a_verdict(name: str) -> None:
    verdict = supports(_REQUEST, machine(name), backward=False)
    assert not verdict.supported
    if name in ("h100", "b200"):
        assert verdict.code == ReasonCode.DEPENDENCY
        assert verdict.hint == "pip install flash-attn-4==4.0.0b36 triton"


@pytest.mark.sweep
def test_its_absence_is_no_error_of_an_import() -> None:
    program = (
        "import sys\n"
        "for name in ('flash_attn', 'cutlass', 'triton'): sys.modules[name] = None\n"
        "import torchyard_cuda.fa4._adapter, torchyard_cuda.fa4.compiled\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_it_comes_first_where_it_is_enlisted() -> None:
    platform = machine("b200", flash_attn_4=_VERSION)
    environ = {"TORCHYARD_ENLIST": "cuda.fa4,cuda.triton"}
    request = replace(_REQUEST, mask=MaskKind.CAUSAL)
    assert Registry(platform=platform, environ={}).decide(FORWARD, request).name == "cuda.cudnn"
    assert Registry(platform=platform, environ=environ).decide(FORWARD, request).name == "cuda.fa4"
    absent = Registry(platform=machine("b200"), environ=environ).decide(FORWARD, request)
    assert absent.name == "cuda.cudnn"


def test_block_masks_are_on_request_until_a_gpu_ran_them() -> None:
    platform = machine("h100", flash_attn_4=_VERSION)
    request = replace(_REQUEST, **_MASK)
    asked = {"TORCHYARD_ENLIST": "cuda.fa4_blocks"}
    assert Registry(platform=platform, environ={}).decide(FORWARD, request).name == "cuda.triton"
    for contract in (FORWARD, BACKWARD):
        registry = Registry(platform=platform, environ=asked)
        assert registry.decide(contract, request).name == "cuda.fa4_blocks"
    # A call has one of the two names, and the other says which.
    without = replace(request, mask=MaskKind.NONE, mask_text="", mask_captured=())
    named = {name: supports(without, platform, backward=False) for name, supports in FA4.items()}
    assert (named["fa4"].supported, named["fa4_blocks"].hint) == (True, "use cuda.fa4")
    named = {name: supports(request, platform, backward=False) for name, supports in FA4.items()}
    assert named["fa4_blocks"].supported
    assert "TORCHYARD_ENLIST=cuda.fa4_blocks" in named["fa4"].hint


@given(
    st.sampled_from([*NVIDIA, *OTHERS]),
    st.integers(0, 300),
    st.integers(0, 300),
    st.booleans(),
    st.sampled_from(MaskKind),
    st.sampled_from(["", _MASK["mask_text"]]),
)
def test_any_request_has_a_verdict(
    name: str, head_dim: int, value_dim: int, grad: bool, mask: MaskKind, text: str
) -> None:
    changes = {"head_dim": head_dim, "value_dim": value_dim, "grad": grad}
    changes |= {"mask": mask, "mask_text": text, "block_size": (128, 128)}
    verdict = _judged({"name": name}, **changes)
    assert verdict.text
    if verdict.supported:
        assert _judged({"name": name}, **{**changes, "grad": False}).supported
