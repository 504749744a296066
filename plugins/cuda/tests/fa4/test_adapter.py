"""The adapter: layouts, the mask's alignment, results; versions and signatures that were read."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plugins.cuda.tests.fa4.fa4_on_torch import DOCUMENTED
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import GradientRuler, Ruler, report
from torchyard_cuda.fa4._adapter import (
    Fa4Backward,
    Fa4Forward,
    UnknownVersionError,
    check_signatures,
    functions,
)
from torchyard_cuda.fa4._known import Signatures, known

_MODULES = (
    *("flash_attn", "flash_attn.cute", "flash_attn.cute.interface"),
    "flash_attn.cute.block_sparsity",
)


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


@pytest.mark.usefixtures("cute")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("q_length", "kv_length"), [(40, 40), (30, 50), (50, 30), (1, 9)])
@pytest.mark.parametrize("with_lse", [False, True])
def test_the_adapter_computes_the_contract(
    q_length: int, kv_length: int, causal: bool, with_lse: bool
) -> None:
    call = _call(q_length, kv_length, causal)
    result = Fa4Forward(DOCUMENTED)(call)
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert result.out.is_contiguous()
    assert result.lse is not None
    grad_out = torch.randn_like(result.out)
    grad_lse = torch.randn_like(result.lse) if with_lse else None
    found = Fa4Backward(DOCUMENTED)(call, result.out, result.lse, grad_out, grad_lse)
    errors = GradientRuler(call, grad_out, grad_lse).compare(found)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert found.key.shape == call.key.shape
    assert found.value.is_contiguous()


def test_hidden_values_that_are_not_finite_take_no_part() -> None:
    call = _call(40, 40, True)
    call.value[:, :, 30] = math.nan
    with pytest.warns(RuntimeWarning, match="not finite.* attention.tiled computes the call"):
        result = Fa4Forward(DOCUMENTED)(call)
    assert result.out[:, :, :30].isfinite().all()


def test_the_lse_that_nobody_asked_for_is_left_out() -> None:
    assert Fa4Forward(DOCUMENTED)(replace(_call(8, 8, False), lse=False)).lse is None


def test_the_functions_here_have_the_arguments_that_were_read() -> None:
    assert known()
    for expected in known().values():
        check_signatures(DOCUMENTED, expected)


@pytest.mark.parametrize("direction", ["forward", "backward", "lists"])
def test_a_missing_argument_is_named(direction: str) -> None:
    expected = {"forward": ("q",), "backward": ("q",), "lists": ("block_size",)}
    expected[direction] = (*expected[direction], "renamed")
    with pytest.raises(UnknownVersionError, match=f"{direction}: expected an argument renamed"):
        check_signatures(DOCUMENTED, Signatures(**expected))


def test_an_import_leaves_the_programs_hooks_and_warnings_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "flash_attn" / "cute"
    package.mkdir(parents=True)
    # What CUTLASS' DSL changes on import.
    (package / "interface.py").write_text(
        "import sys, warnings\n"
        "from plugins.cuda.tests.fa4.fa4_on_torch import backward as _flash_attn_bwd\n"
        "from plugins.cuda.tests.fa4.fa4_on_torch import forward as _flash_attn_fwd\n"
        "sys.excepthook = print\n"
        "warnings.simplefilter('ignore')\n"
    )
    (package / "block_sparsity.py").write_text(
        "from plugins.cuda.tests.fa4.fa4_on_torch import Lists as BlockSparseTensorsTorch\n"
    )
    for name in _MODULES:
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
        for name in _MODULES:
            sys.modules.pop(name, None)

    assert found.forward.__name__ == "forward"
    assert (sys.excepthook, list(warnings.filters)) == before
