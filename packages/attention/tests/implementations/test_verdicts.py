"""What is refused, on machines that are not this one, and which reason is given."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from torchyard import Accelerator, Platform, ReasonCode
from torchyard_attention.contract import AttentionRequest, MaskKind, ScoreKind
from torchyard_attention.implementations import dense, flex, sdpa, tiled

X86 = Platform("Linux", "x86_64", frozenset({"avx2"}), 8, "3.11.7", "2.13.0", frozenset({"cpu"}))
ARM = replace(X86, machine="aarch64", cpu_features=frozenset({"asimd"}))
PLAIN = AttentionRequest(
    device="cpu",
    dtype="float32",
    batch=1,
    q_heads=8,
    kv_heads=8,
    q_length=128,
    kv_length=128,
    head_dim=64,
    value_dim=64,
)


@pytest.mark.parametrize(
    ("changes", "platform", "code"),
    [
        ({}, X86, None),
        ({"score": ScoreKind.POINTWISE, "mask": MaskKind.BLOCKS}, X86, None),
        ({"score": ScoreKind.GENERAL}, X86, ReasonCode.SCORE_MOD),
        ({"lse": True}, X86, ReasonCode.OUTPUT),
        ({"grad": True}, X86, ReasonCode.GRAD),
        ({"dtype": "float64"}, X86, ReasonCode.DTYPE),
        ({"q_length": 0}, X86, ReasonCode.SHAPE),
        ({}, ARM, ReasonCode.ISA),
        ({}, replace(X86, system="Darwin"), ReasonCode.ISA),
        ({}, replace(X86, devices=frozenset({"cpu", "xpu"})), ReasonCode.DEVICE),
        ({"device": "simulated"}, X86, ReasonCode.DEVICE),
        ({"device": "cuda", "lse": True, "grad": True}, ARM, None),
        ({"device": "mps", "lse": True}, ARM, ReasonCode.OUTPUT),
    ],
)
def test_flex_accepts_what_torch_compiles(
    changes: dict[str, object], platform: Platform, code: ReasonCode | None
) -> None:
    assert flex.supports(replace(PLAIN, **changes), platform).code == code


@pytest.mark.parametrize(
    ("changes", "code", "backward_code"),
    [
        ({}, None, None),
        ({"mask": MaskKind.CAUSAL, "grad": True}, None, None),
        ({"mask": MaskKind.BLOCKS}, ReasonCode.MASK, ReasonCode.MASK),
        ({"score": ScoreKind.POINTWISE}, ReasonCode.SCORE_MOD, ReasonCode.SCORE_MOD),
        ({"value_dim": 32}, ReasonCode.HEAD_DIM, ReasonCode.HEAD_DIM),
        ({"kv_length": 0}, ReasonCode.SHAPE, ReasonCode.SHAPE),
        ({"dtype": "int8"}, ReasonCode.DTYPE, ReasonCode.DTYPE),
        ({"device": "cuda", "dtype": "bfloat16", "value_dim": 32}, None, ReasonCode.GRAD),
        ({"device": "cuda", "lse": True}, ReasonCode.OUTPUT, ReasonCode.GRAD),
        ({"device": "cuda", "dtype": "float64"}, ReasonCode.DTYPE, ReasonCode.GRAD),
    ],
)
def test_sdpa_accepts_plain_and_causal_attention(
    changes: dict[str, object], code: ReasonCode | None, backward_code: ReasonCode | None
) -> None:
    request = replace(PLAIN, **changes)

    assert sdpa.supports(request, X86).code == code
    assert sdpa.supports_backward(request, X86).code == backward_code


def test_tiled_and_the_reference_accept_floating_point_alone() -> None:
    for module in (tiled, dense):
        assert module.supports(PLAIN, ARM).supported
        assert module.supports(replace(PLAIN, dtype="int32"), ARM).code == ReasonCode.DTYPE
    assert dense.supports(replace(PLAIN, device="mps"), ARM).code == ReasonCode.DEVICE


@pytest.mark.sweep
def test_listing_the_implementations_loads_none_of_them() -> None:
    program = (
        "import sys\n"
        "from torchyard_attention.implementations import torchyard_implementations as listed\n"
        "assert listed('attention/1') and listed('attention_backward/1') and not listed('x/1')\n"
        "kernels = ('_tiled_forward', '_tiled_backward', '_compiled_flex', '_flex_backward')\n"
        "loaded = [name for name in sys.modules if name.endswith(kernels)]\n"
        "assert not loaded, loaded\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("architecture", "libraries", "code"),
    [
        ("sm_90", (("triton", "3.7.1"),), None),
        ("gfx942", (("triton", "3.7.1"),), None),
        ("sm_90", (), ReasonCode.DEPENDENCY),
        ("sm_61", (("triton", "3.7.1"),), ReasonCode.ISA),
    ],
)
def test_flex_needs_triton_and_a_processor_that_it_compiles_for(
    architecture: str, libraries: tuple[tuple[str, str], ...], code: ReasonCode | None
) -> None:
    machine = replace(
        X86,
        devices=frozenset({"cpu", "cuda"}),
        accelerators=(Accelerator("cuda", architecture, "a card"),),
        libraries=libraries,
    )
    assert flex.supports(replace(PLAIN, device="cuda", grad=True), machine).code == code
    # Of the CPU's own template neither says anything.
    assert flex.supports(PLAIN, machine).supported


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, None),
        ({"device": "xpu"}, None),
        ({"device": "cpu"}, ReasonCode.DEVICE),
        ({"device": "mps"}, ReasonCode.DEVICE),
        ({"captured_grad": (False, True)}, ReasonCode.DETERMINISM),
        ({"captured_grad": (False,)}, None),
        ({"dropout": True}, ReasonCode.DROPOUT),
        ({"head_dim": 8}, ReasonCode.HEAD_DIM),
        ({"value_dim": 8}, ReasonCode.HEAD_DIM),
        ({"block_size": (128, 64)}, ReasonCode.MASK),
        ({"block_size": (256, 128)}, None),
    ],
)
def test_the_backward_of_flex_accepts_what_torchs_templates_in_triton_compute(
    changes: dict[str, Any], code: ReasonCode | None
) -> None:
    request = replace(PLAIN, device="cuda", grad=True)
    assert flex.supports_backward(replace(request, **changes), X86).code == code
    # The forward computes what the backward does, and no more small heads or blocks.
    if code in (ReasonCode.HEAD_DIM, ReasonCode.MASK):
        assert flex.supports(replace(request, **changes), X86).code == code
