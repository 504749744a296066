"""Faults planted in the kernel of products are found, each by what it breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from packages.kernels.tests.linear.calls import CALL, LAYOUTS, excess, normal, with_functions
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.mutants import planted
from torchyard_kernels.linear.contract import LinearCall
from torchyard_mps.linear import _product, multiply

_INT4: Final = replace(CALL, weight=LAYOUTS["int4-groups"](normal(67, 70)))
_INT4_CALL: Final = replace(_INT4, x=normal(3, 70, seed=1), bias=None)
_INT8_CALL: Final = replace(_INT4_CALL, weight=LAYOUTS["int8"](normal(67, 70)))

_SWIGLU: Final = with_functions(epilogue=lambda gate, up: gate * up, gated=True)
_ROWS: Final = normal(2, 3, 1, seed=7)
_COLUMN: Final = normal(38, seed=8)
_TILE: Final = normal(38, 3, seed=9).t()
_BATCHED: Final = with_functions(
    lambda x: x * _ROWS,
    lambda y: y + _ROWS,
    call=LinearCall(normal(2, 3, 45, seed=1), normal(2, 38, 45)),
)
_CAPTURED: Final = with_functions(epilogue=lambda y: y * _TILE + _COLUMN)
_INNER: Final = normal(45, 3, seed=10).t()
_BEFORE: Final = with_functions(lambda x: torch.cos(x) + _INNER)

# What is planted, the call that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, LinearCall, str]]] = [
    ("row < row_count && k < depth", "row <= row_count && k < depth", CALL, "out-of-bounds"),
    ("n < outputs && k < depth", "n < outputs && k <= depth", CALL, "out-of-bounds"),
    ("row >= row_count ||", "", CALL, "out-of-bounds"),
    ("x[row * sizes[kX + 1] + k", "x[row + k", CALL, ""),
    ("float(code - zero)", "float(code)", _INT8_CALL, ""),
    ("(k / 4 % 2 * 4)", "(k % 2 * 4)", _INT4_CALL, ""),
    ("k / max(GROUP, 1)", "0", _INT4_CALL, ""),
    ("int(zeros[place])", "8", _INT4_CALL, ""),
    ("n / 64 * sizes[kGroups] + group", "n / 64 + group", _INT4_CALL, ""),
    ("float(bias[n])", "float(bias[0])", CALL, ""),
    ("batch, n + outputs, k)", "batch, n, k)", _SWIGLU, ""),
    (
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (int of",
        "    for (int of",
        CALL,
        "missing-barrier",
    ),
    ("batch * row_count + row, k, captured", "row, k, captured", _BATCHED, ""),
    ("after(y, up, flat_row, n", "after(y, up, row, n", _BATCHED, ""),
    ("k, captured, sizes)", "0, captured, sizes)", _BEFORE, ""),
    ("? before(", "? before(0.0f * ", _BEFORE, ""),
    ("row * sizes[11]", "0", _CAPTURED, ""),
    ("column * sizes[12]", "column", _CAPTURED, ""),
    ("row * sizes[13]", "row * sizes[11]", _CAPTURED, "out-of-bounds"),
    ("column * sizes[14]", "column * sizes[13]", _CAPTURED, ""),
    ("{captured0, captured1}", "{captured0, captured0}", _CAPTURED, ""),
    ("captured.captured1[", "captured.captured0[", _CAPTURED, ""),
]


def _excess(call: LinearCall) -> float:
    with emulated():
        return excess(call, multiply, blocked=False)


@planted(_MUTANTS, "call")
def test_mutant_is_caught(
    right: str, wrong: str, call: LinearCall, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_of = _product._source

    def broken(*given: Any) -> str:
        source = source_of(*given)
        assert right in source
        return source.replace(right, wrong)

    monkeypatch.setattr(_product, "_source", broken)
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _excess(call)
    else:
        assert _excess(call) > 1


@pytest.mark.parametrize("call", [_SWIGLU, _BATCHED, _CAPTURED, _BEFORE, _INT4_CALL, _INT8_CALL])
def test_without_it_nothing_is_wrong(call: LinearCall) -> None:
    assert _excess(call) <= 1
