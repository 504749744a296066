"""attention.flex's gradients by torch's own template in Triton: as near to float64 as naive ones.

On a machine without a GPU Inductor generates the template's kernels for the CPU, and Triton's
interpreter runs them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget

from torchyard import registry
from torchyard_attention._torch_compat import triton_for_cpu
from torchyard_attention.cases import CASES, MASK_MODS, Case
from torchyard_attention.contract import AttentionCall
from torchyard_attention.implementations import flex
from torchyard_attention.reference import reference_forward
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, report

_INTERPRETED: Final = os.environ.get("TRITON_INTERPRET") == "1"
# Cases for each `nox -s tests`; the sweep has all.
_FEW: Final = frozenset(
    {
        "plain",
        "recorded-documents",
        "score-undefined_where_hidden",
        "score-ignores_score",
        "value_dim-96",
    }
)
# Functions that the interpreter lacks the means for: CUDA's library has tanh, and Inductor gives a
# kernel a tensor of no dimensions on the CPU as a number, which is no value of Triton's there.
_NOT_INTERPRETED: Final = frozenset({"softcap", "gate", "gated_alibi"})


class _NoDriver:
    """What Inductor asks of Triton's driver before anything runs; the interpreter asks nothing."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have Inductor generate Triton for the CPU where kernels are interpreted."""
    if not _INTERPRETED:
        yield
        return
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton.runtime.driver, "_active", _NoDriver())
    with triton_for_cpu():
        yield


def _cases() -> dict[str, Case]:
    """Return the grid without gradients of captured tensors, and calls whose masks are recorded."""
    without = {
        name: replace(case, sizes={**case.sizes, "captured_grad": False})
        for name, case in CASES.items()
    }
    recorded = {
        f"recorded-{mask}": Case(f"recorded-{mask}", {"q_length": 150}, mask, recorded=True)
        for mask in MASK_MODS
    }
    return {
        name: case
        for name, case in (without | recorded).items()
        if not (_INTERPRETED and case.score_mod in _NOT_INTERPRETED)
    }


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in _FEW else [pytest.mark.sweep])
        for name, case in _cases().items()
    ],
)
def test_gradients(case: Case, device: torch.device) -> None:
    call = case.call(str(device))
    request = replace(case.request(call, grad=True), device="cuda")
    verdict = flex.supports_backward(request, registry().platform)
    if not verdict.supported or not call.lse:
        return
    if _INTERPRETED and call.query.dtype == torch.bfloat16:
        # Triton's interpreter multiplies bfloat16 as integers; float16 is tried in its stead.
        call = replace(call, **{n: getattr(call, n).half() for n in ("query", "key", "value")})
    _check(call)


def test_gradients_through_a_function_of_the_score(device: torch.device) -> None:
    gates = torch.tensor([0.5, 1.0, 1.5, 2.0], device=device)
    call = make_call(
        kv_heads=2,
        device=device,
        score_mod=lambda score, b, h, q, k: gates[h] * score + 0.25 * score * score,
        captured_grad=False,
    )
    _check(call)


def _check(call: AttentionCall) -> None:
    """Compare with naive gradients of what the reference's forward returns."""
    forward = reference_forward(call)
    assert forward.lse is not None
    generator = torch.Generator().manual_seed(9)
    grad_out = torch.randn(forward.out.shape, generator=generator).to(forward.out)
    grad_lse = torch.randn(forward.lse.shape, generator=generator).to(forward.lse)

    found = flex.load_backward()(call, forward.out, forward.lse, grad_out, grad_lse)

    assert not (message := report(GradientRuler(call, grad_out, grad_lse).compare(found))), message
