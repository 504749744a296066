"""Faults planted in the kernel of maps are found, each by what it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
import torch

from packages.kernels.tests.pointwise.calls import call_of, excess, normal
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.mutants import planted
from torchyard_kernels.pointwise.contract import PointwiseCall
from torchyard_mps.pointwise import _kernel, compute


def _written(function: Callable[..., Any], *lists: Sequence[Any]) -> PointwiseCall:
    """Return a call into zeros, which no result is."""
    return call_of(function, *lists, out=([torch.zeros_like(item) for item in lists[0]],))


def _shifted(x: Any, y: Any = 1.0) -> Any:
    return 3 + x * y


def _chosen(x: Any, flag: Any) -> Any:
    return torch.where(flag & (x == x), x, 3.0)


_XS: Final = normal([(5, 3), (2, 3)], seed=6)
_YS: Final = [one.t().contiguous().t() for one in normal([(5, 3), (2, 3)], seed=7)]
_LONG: Final = normal([(1100,), (5,)], seed=8)
_ROW: Final = normal([(3,)], seed=9)[0]


def _added(x: Any) -> Any:
    return x * 2 + _ROW


def _swapped() -> PointwiseCall:
    lists = [one.clone() for one in _XS], [one.clone() for one in _YS]
    return call_of(lambda x, y: (y, x + 4), *lists, out=lists)


# What is planted, the call that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, Callable[[], PointwiseCall], str]]] = [
    ("row[kCount])", "row[kCount] + 1)", lambda: call_of(_shifted, _LONG), "out-of-bounds"),
    ("row[kCount])", "row[kCount] - 1)", lambda: _written(_shifted, _LONG), ""),
    ("group >= table", "group > table", lambda: _written(_shifted, _LONG), ""),
    ("- row[kFirst])", ")", lambda: _written(_shifted, _LONG), ""),
    ("* kChunk; }", "* kThreads; }", lambda: _written(_shifted, _LONG), "race"),
    ("at += kThreads", "at += kChunk", lambda: _written(_shifted, _LONG), ""),
    ("first + long(me)", "first + long(me / 2)", lambda: _written(_shifted, _LONG), "race"),
    ("= rest % size", "= 0", lambda: _written(_shifted, _XS, _YS), "race"),
    ("rest /= size", "rest /= 1", lambda: _written(_shifted, _XS, _YS), "out-of-bounds"),
    ("* strides[dimension]", "", lambda: _written(_shifted, _XS, _YS), "race"),
    ("+ operand * DIMENSIONS", "", lambda: _written(_shifted, _XS, _YS), ""),
    ("as_type<float>(int(bits))", "float(bits)", lambda: _written(_shifted, _XS, [2.0, 3.0]), ""),
    ("kNumbers + 0] != 0", "kNumbers + 0] == 0", lambda: call_of(_chosen, _XS, [True, False]), ""),
    ("slot * WIDTH;", "0;", lambda: _written(_shifted, _XS, [2.0, 3.0]), ""),
    ("float(r1)", "float(r0)", _swapped, ""),
    (
        "place_of(row, 1, indices)",
        "place_of(row, 0, indices)",
        lambda: call_of(_added, _XS),
        "out-of-bounds",
    ),
]


def _broken(right: str, wrong: str) -> Callable[..., str]:
    source_of = _kernel._source.__wrapped__

    def broken(*given: Any) -> str:
        source = source_of(*given)
        assert right in source
        return source.replace(right, wrong)

    return broken


def _excess(call: PointwiseCall) -> float:
    with emulated():
        return excess(call, compute)


@planted(_MUTANTS, "call")
def test_mutant_is_caught(
    right: str,
    wrong: str,
    call: Callable[[], PointwiseCall],
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _excess(call()) <= 1
    monkeypatch.setattr(_kernel, "_source", _broken(right, wrong))
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _excess(call())
    else:
        assert _excess(call()) > 1
