"""The adapter: layouts, the mask's alignment, results; versions and signatures that were read."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, Ruler, report
from torchyard_cuda.fa4._adapter import (
    Fa4Backward,
    Fa4Forward,
    Functions,
    UnknownVersionError,
    check_signatures,
    functions,
)
from torchyard_cuda.fa4._known import Signatures, known


def _attend(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Compute attention of [B, S, H, D] as flash_attn.cute documents it.

    Its causal mask is aligned at the last row and key.
    """
    group = q.shape[2] // k.shape[2]
    query = q.double().transpose(1, 2)
    key, value = (x.double().transpose(1, 2).repeat_interleave(group, 1) for x in (k, v))
    scores = query @ key.mT * softmax_scale
    if causal:
        rows, keys = scores.shape[-2:]
        hidden = torch.arange(keys) > torch.arange(rows)[:, None] + keys - rows
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2), scores.logsumexp(-1)


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    score_mod: Any = None,
    mask_mod: Any = None,
    aux_tensors: Any = None,
    return_lse: bool = False,
) -> tuple[Any, ...]:
    assert softmax_scale is not None
    out, lse = _attend(q, k, v, softmax_scale, causal)
    return out.to(q.dtype), lse.float() if return_lse else None, None, None, None


def _backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    dout: Tensor,
    lse: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
    score_mod: Any = None,
    score_mod_bwd: Any = None,
    mask_mod: Any = None,
    aux_tensors: Any = None,
    dlse: Tensor | None = None,
) -> tuple[Tensor, ...]:
    assert softmax_scale is not None
    assert out.shape == dout.shape
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        found, found_lse = _attend(*leaves, softmax_scale, causal)
        torch.testing.assert_close(found_lse.float().detach(), lse, rtol=1e-3, atol=1e-3)
        total = (found * dout).sum()
        if dlse is not None:
            total = total + (found_lse * dlse).sum()
        return torch.autograd.grad(total, leaves)


_DOCUMENTED = Functions(_forward, _backward)


def _call(q_length: int, kv_length: int, causal: bool) -> AttentionCall:
    row, key = torch.arange(q_length)[:, None], torch.arange(kv_length)
    return make_call(
        q_length=q_length,
        kv_length=kv_length,
        kv_heads=2,
        head_dim=16,
        value_dim=24,
        visible=row >= key if causal else None,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("q_length", "kv_length"), [(40, 40), (30, 50), (1, 9)])
@pytest.mark.parametrize("with_lse", [False, True])
def test_the_adapter_computes_the_contract(
    q_length: int, kv_length: int, causal: bool, with_lse: bool
) -> None:
    call = _call(q_length, kv_length, causal)
    result = Fa4Forward(_DOCUMENTED)(call)
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert result.out.is_contiguous()
    assert result.lse is not None
    grad_out = torch.randn_like(result.out)
    grad_lse = torch.randn_like(result.lse) if with_lse else None
    found = Fa4Backward(_DOCUMENTED)(call, result.out, result.lse, grad_out, grad_lse)
    errors = GradientRuler(call, grad_out, grad_lse).compare(found)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert found.key.shape == call.key.shape
    assert found.value.is_contiguous()


def test_hidden_values_that_are_not_finite_take_no_part() -> None:
    call = _call(40, 40, True)
    call.value[:, :, 30] = math.nan
    with pytest.warns(RuntimeWarning, match="not finite.* attention.tiled computes the call"):
        result = Fa4Forward(_DOCUMENTED)(call)
    assert result.out[:, :, :30].isfinite().all()


def test_the_lse_that_nobody_asked_for_is_left_out() -> None:
    assert Fa4Forward(_DOCUMENTED)(replace(_call(8, 8, False), lse=False)).lse is None


def test_the_functions_here_have_the_arguments_that_were_read() -> None:
    assert known()
    for expected in known().values():
        check_signatures(_DOCUMENTED, expected)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_missing_argument_is_named(direction: str) -> None:
    expected = {"forward": ("q",), "backward": ("q",), direction: ("q", "renamed")}
    with pytest.raises(UnknownVersionError, match=f"{direction}: expected an argument renamed"):
        check_signatures(_DOCUMENTED, Signatures(**expected))


def test_an_import_leaves_the_programs_hooks_and_warnings_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "flash_attn" / "cute"
    package.mkdir(parents=True)
    # What CUTLASS' DSL changes on import.
    (package / "interface.py").write_text(
        "import sys, warnings\n"
        "from plugins.cuda.tests.fa4.test_adapter import _backward as _flash_attn_bwd\n"
        "from plugins.cuda.tests.fa4.test_adapter import _forward as _flash_attn_fwd\n"
        "sys.excepthook = print\n"
        "warnings.simplefilter('ignore')\n"
    )
    for name in ("flash_attn", "flash_attn.cute", "flash_attn.cute.interface"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("torchyard_cuda.fa4._adapter.version", lambda name: next(iter(known())))
    functions.cache_clear()
    before = sys.excepthook, list(warnings.filters)
    try:
        found = functions()
        assert sys.modules["flash_attn.cute.interface"].sys is sys
    finally:
        functions.cache_clear()
        for name in ("flash_attn", "flash_attn.cute", "flash_attn.cute.interface"):
            sys.modules.pop(name, None)

    assert found.forward.__name__ == "_forward"
    assert (sys.excepthook, list(warnings.filters)) == before
