"""The adapter: layouts, scale, the mask's alignment, results; functions that were read or not."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext as _nothing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from plugins.rocm.tests.attention.stand_ins import Faults, aiter_function, flash_function
from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call
from torchyard_attention.tolerance import Ruler, report
from torchyard_rocm.attention import _adapter
from torchyard_rocm.attention._adapter import (
    LibraryForward,
    UnknownFunctionError,
    function_of,
)
from torchyard_rocm.attention._libraries import LIBRARIES, Library

_BY_NAME: Final = {library.name: library for library in LIBRARIES}
_STAND_INS: Final[dict[str, Callable[..., Callable[..., Any]]]] = {
    "aiter": aiter_function,
    "flash": flash_function,
}
_LIBRARIES: Final = pytest.mark.parametrize("name", _STAND_INS)


_RIGHT: Final = Faults()


def _forward(name: str, faults: Faults = _RIGHT) -> LibraryForward:
    return LibraryForward(_BY_NAME[name], _STAND_INS[name](faults))


def _call(q_length: int, kv_length: int, causal: bool, **changes: Any) -> AttentionCall:
    row, key = torch.arange(q_length)[:, None], torch.arange(kv_length)
    visible = row >= key if causal else None
    sizes = {"q_heads": 4, "kv_heads": 2, "head_dim": 16, "scale": 0.3, **changes}
    return make_call(q_length=q_length, kv_length=kv_length, visible=visible, **sizes)


@_LIBRARIES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("q_length", "kv_length"), [(40, 40), (30, 50), (50, 30), (1, 9), (9, 1)])
def test_the_adapter_computes_the_contract(
    name: str, q_length: int, kv_length: int, causal: bool, dtype: torch.dtype
) -> None:
    call = _call(q_length, kv_length, causal, dtype=dtype)
    result = _forward(name)(call)
    errors = Ruler(call).compare(result)
    assert all(error.ratio <= 1 for error in errors), report(errors)
    assert {error.name for error in errors} >= {"out", "lse"}
    assert result.out.is_contiguous()
    assert result.lse is not None
    assert result.lse.is_contiguous()
    assert result.lse.dtype == torch.float32


def test_heads_of_two_sizes() -> None:
    call = _call(20, 30, True, head_dim=24, value_dim=16, dtype=torch.bfloat16)
    errors = Ruler(call).compare(_forward("aiter")(call))
    assert all(error.ratio <= 1 for error in errors), report(errors)


@_LIBRARIES
def test_inputs_of_any_strides(name: str) -> None:
    call = _call(20, 30, True, dtype=torch.bfloat16)
    strided = replace(call, query=call.query.mT.contiguous().mT, key=call.key.mT.contiguous().mT)
    assert strided.query.stride(-1) != 1
    assert torch.equal(_forward(name)(strided).out, _forward(name)(call).out)


FAULTS: Final = {
    "causal": (Faults(causal_at_the_first=True), False),
    "scale": (Faults(scale_squared=True), True),
    "lse in bits": (Faults(lse=lambda lse: lse / math.log(2)), True),
    "lse of raw scores": (Faults(lse=lambda lse: lse - math.log(0.3)), True),
    "lse in half": (Faults(lse=lambda lse: lse.half()), True),
    "lse by rows first": (Faults(lse=lambda lse: lse.mT.contiguous()), True),
    "lse transposed": (Faults(lse=lambda lse: lse.mT.reshape(lse.shape)), True),
    "heads": (Faults(grouped_heads=True), True),
}


@_LIBRARIES
@pytest.mark.parametrize("fault", FAULTS)
def test_a_library_that_computes_something_else_is_found(name: str, fault: str) -> None:
    faults, found = FAULTS[fault]
    outcomes = []
    for q_length, kv_length in ((40, 40), (30, 50), (50, 30)):
        call = _call(q_length, kv_length, True)
        try:
            errors = Ruler(call).compare(_forward(name, faults)(call))
        except UnknownFunctionError:
            outcomes.append(True)
        else:
            outcomes.append(any(error.ratio > 1 for error in errors))
    # Rows and keys of a causal piece are as many: there both alignments are the same mask.
    assert outcomes == [found] * 3


@_LIBRARIES
@pytest.mark.parametrize("lengths", [(30, 50), (50, 30)])
def test_a_call_that_is_not_cut_into_pieces_is_found(
    name: str, lengths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = _call(*lengths, True)
    whole = [_adapter.Piece((0, lengths[0]), lengths[1], True)]
    monkeypatch.setattr(_adapter, "pieces", lambda *_: whole)
    with pytest.warns(RuntimeWarning) if lengths[0] > lengths[1] else _nothing():
        result = _forward(name)(call)
    if lengths[0] < lengths[1]:
        assert any(error.ratio > 1 for error in Ruler(call).compare(result))


@_LIBRARIES
def test_hidden_values_that_are_not_finite_take_no_part(name: str) -> None:
    call = _call(40, 40, True, dtype=torch.bfloat16)
    call.value[:, :, 30] = math.nan
    with pytest.warns(RuntimeWarning, match=r"attention=rocm\.triton"):
        result = _forward(name)(call)
    assert result.out[:, :, :30].isfinite().all()


@_LIBRARIES
def test_the_lse_that_nobody_asked_for_is_left_out(name: str) -> None:
    assert _forward(name)(replace(_call(8, 8, False), lse=False)).lse is None


def _installed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, library: Library, source: str
) -> None:
    """Have a module of a library's name, for a test."""
    (folder / f"{library.module}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, library.module, raising=False)


@pytest.fixture
def _forgotten() -> Any:
    yield
    for library in LIBRARIES:
        sys.modules.pop(library.module, None)


def _source(parameters: list[str]) -> str:
    return f"def flash_attn_func({', '.join(parameters)}):\n    pass\n"


_SIGNATURES: Final = [
    (library.name, versions) for library in LIBRARIES for versions in library.signatures
]


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(("name", "versions"), _SIGNATURES)
def test_functions_that_were_read_are_taken(
    name: str, versions: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = _BY_NAME[name]
    _installed(monkeypatch, tmp_path, library, _source(list(library.signatures[versions])))
    assert function_of(library).__module__ == library.module


@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda of: [*of, "softmax_one=False"], "expected no parameter .*, got softmax_one=False"),
        (lambda of: of[:8], "expected parameter .* to be .*, got none"),
        (lambda of: [*of[:4], "scale=None", *of[5:]], "to be softmax_scale=None, got scale=None"),
        (lambda of: [*of[:5], "causal=True", *of[6:]], "to be causal=False, got causal=True"),
    ],
)
@_LIBRARIES
def test_another_function_is_refused_by_name(
    name: str,
    change: Callable[[list[str]], list[str]],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    library = _BY_NAME[name]
    *_, newest = library.signatures.values()
    _installed(monkeypatch, tmp_path, library, _source(change(list(newest))))
    with pytest.raises(UnknownFunctionError, match=rf"rocm\.{name}: .*{text}.*that was read"):
        function_of(library)


@pytest.mark.usefixtures("_forgotten")
def test_another_package_of_the_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = _BY_NAME["aiter"]
    _installed(monkeypatch, tmp_path, library, "")
    with pytest.raises(UnknownFunctionError, match=r"found none in .*aiter is another one"):
        function_of(library)


@_LIBRARIES
def test_stand_ins_have_the_newest_parameters(name: str) -> None:
    *_, newest = _BY_NAME[name].signatures.values()
    assert _adapter._parameters(_STAND_INS[name]()) == list(newest)
