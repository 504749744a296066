"""The selection in Metal gives the reference's values and indices to the bit, without a finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.kernels.tests.topk.cases import rows
from plugins.mps.tests.emulated import emulated
from torchyard import ReasonCode, Registry, read_platform_file
from torchyard_kernels.topk.contract import DTYPES, TOPK, Order, TopKCall, TopKRequest
from torchyard_kernels.topk.reference import reference_topk
from torchyard_mps.implementations import torchyard_implementations
from torchyard_mps.implementations._topk import supports_topk
from torchyard_mps.topk import _selection, select

# Metal has no float64.
_DTYPES: Final = [name for name in DTYPES if name != "float64"]


def _differences(call: TopKCall, **options: Any) -> list[str]:
    """Return what of a selection is not the reference's; zeros' signs count, NaNs' bits do not."""
    with emulated(**options):
        got = select(call)
    wanted = reference_topk(call)
    found = [] if torch.equal(got.indices, wanted.indices) else ["indices"]
    same = torch.equal(torch.nan_to_num(got.values), torch.nan_to_num(wanted.values))
    if call.x.dtype.is_floating_point:
        number = ~wanted.values.isnan()
        same = same and torch.equal(got.values.isnan(), ~number)
        same = same and torch.equal(got.values.signbit() & number, wanted.values.signbit() & number)
    if not same:
        found.append("values")
    if not (got.values.is_contiguous() and got.indices.is_contiguous()):
        found.append("layout")
    return found


@st.composite
def _calls(draw: st.DrawFn, most: int) -> TopKCall:
    length = draw(st.integers(1, most))
    x = draw(rows((draw(st.integers(0, 2)), length)))
    x = x.float() if x.dtype == torch.float64 else x
    k = draw(st.integers(1, length))
    mask = None
    if draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
        share = draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
        mask = torch.rand(x.shape, generator=generator) < share
    return TopKCall(x, k, draw(st.booleans()), draw(st.sampled_from(Order)), mask)


@settings(max_examples=10)
@given(call=_calls(300))
def test_rows(call: TopKCall) -> None:
    assert _differences(call) == []


@pytest.mark.sweep
@settings(max_examples=200)
@given(call=_calls(1000))
def test_many_rows(call: TopKCall) -> None:
    assert _differences(call) == []


@pytest.mark.parametrize("name", _DTYPES)
def test_each_dtype(name: str) -> None:
    dtype = getattr(torch, name)
    x = torch.randn((1, 100), generator=torch.Generator().manual_seed(3)).mul(60).to(dtype)
    if dtype.is_floating_point:
        special = [
            *(float("nan"), float("inf"), float("-inf")),
            *(0.0, -0.0, torch.finfo(dtype).tiny / 2),
        ]
        x[0, 10:70:10] = torch.tensor(special, dtype=dtype)
        x[0, 5] = -x[0, 10]
    else:
        x[0, 10], x[0, 20] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    for largest in (True, False):
        assert _differences(TopKCall(x, 25, largest, Order.SORTED)) == []


@settings(max_examples=4)
@given(data=st.data())
def test_segments(data: st.DataObject) -> None:
    length = data.draw(st.integers(0, 60))
    x = data.draw(rows((length,)))
    x = x.float() if x.dtype == torch.float64 else x
    bounds = sorted(data.draw(st.lists(st.integers(0, length), min_size=1, max_size=4)))
    order = data.draw(st.sampled_from(Order))
    call = TopKCall(
        *(x, data.draw(st.integers(1, 20)), data.draw(st.booleans()), order),
        offsets=torch.tensor(bounds),
    )
    assert _differences(call) == []


def test_more_than_the_kernel_sorts() -> None:
    x = torch.randint(0, 40, (2, 1500), generator=torch.Generator().manual_seed(4)).float()
    assert _differences(TopKCall(x, 1400, True, Order.SORTED)) == []


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded"])
def test_strides(layout: str) -> None:
    x = torch.randn((2, 4, 2), generator=torch.Generator().manual_seed(5)).mul(9).round()
    laid_out = {
        "transposed": x.transpose(1, 2),
        "strided": x[:, ::2].movedim(1, 2),
        "expanded": x[:1].expand(2, 4, 2),
    }[layout]
    mask = (laid_out[:1] > -5).expand(laid_out.shape)
    assert _differences(TopKCall(laid_out, 2, True, Order.SORTED, mask)) == []


# Equal elements, zeros of both signs, NaN, an element that the mask hides.
_X: Final = torch.tensor([[3.0, -1.0, 7.0, 7.0, float("nan"), 2.0, -0.0, 0.0, 7.0, -5.0]]).half()
_TWO: Final = torch.cat([_X, _X.flip(1)])
_CALL: Final = TopKCall(_X, 3, True, Order.SORTED)
_LEAST: Final = replace(_CALL, largest=False, k=4)
_MASKED: Final = replace(_CALL, mask=_X != 7.0)
_ROWS: Final = replace(_CALL, x=_TWO, mask=_TWO != 7.0)


def test_orders_of_threads_and_widths_of_simdgroups_change_nothing() -> None:
    checked = {"orders": 3, "simd_widths": (32, 16, 64), "address_sanitizer": True}
    assert _differences(_ROWS, **checked) == []


# What is planted, the call that shows it, and the finding that names it; empty: its values.
_MUTANTS: Final[list[tuple[str, str, TopKCall, str]]] = [
    ("at < stop &&", "at <= stop &&", replace(_CALL, k=10), "out-of-bounds"),
    ("row * sizes[kRow]", "row * sizes[kColumn]", _ROWS, ""),
    ("x[at * sizes[kColumn]] : El", "x[at * sizes[kMaskColumn]] : El", _CALL, ""),
    ("mask += row * sizes[kMaskRow]", "mask += row * sizes[kMaskColumn]", _ROWS, ""),
    ("(!masked || mask[at", "(masked || mask[at", _MASKED, ""),
    ("number < wanted)", "number <= wanted)", _CALL, "out-of-bounds"),
    ("if (magnitude == 0)", "if (magnitude == 1)", replace(_CALL, k=8), ""),
    ("number = kMagnitude;", ";", replace(_CALL, x=-_X), ""),
    ("rank : rank ^ kAll", "rank : rank", _LEAST, ""),
    ("number ^= kMagnitude", "number ^= 0", _LEAST, ""),
    ("to = written + me", "to = k + me", replace(_MASKED, k=9), ""),
    ("found >= k", "found >= 0", replace(_MASKED, k=9, order=Order.LAST), ""),
    ("other == rank && j < i", "other == rank && j > i", _CALL, ""),
    (
        "if (lane == 0) sums[simd] = all;\n  threadgroup_barrier(mem_flags::mem_threadgroup);",
        "if (lane == 0) sums[simd] = all;",
        _CALL,
        "missing-barrier",
    ),
    (
        "atomic_store_explicit(&counts[bin], 0u, memory_order_relaxed);",
        ";",
        _CALL,
        "uninitialised-read",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "call", "finding"), _MUTANTS)
def test_mutant_is_caught(
    right: str, wrong: str, call: TopKCall, finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _selection.metal_text("topk")
    assert right in source
    monkeypatch.setattr(_selection, "metal_text", lambda *_: source.replace(right, wrong))
    if finding:
        with pytest.raises(AssertionError, match=f"{finding}:"):
            _differences(call)
    else:
        assert _differences(call)


def test_verdicts() -> None:
    machine = read_platform_file("m3").platform
    request = TopKRequest("mps", "float32", 64, 4096, 64)
    assert supports_topk(request, machine).supported
    assert supports_topk(replace(request, masked=True, dtype="int64"), machine).supported
    assert supports_topk(replace(request, dtype="float64"), machine).code == ReasonCode.DTYPE
    assert supports_topk(replace(request, length=2**31), machine).code == ReasonCode.SHAPE
    assert supports_topk(replace(request, device="cpu"), machine).code == ReasonCode.DEVICE
    plain, enlisted = (
        Registry(platform=machine, environ=environ).decide(TOPK, request).name
        for environ in ({}, {"TORCHYARD_ENLIST": "mps.metal"})
    )
    assert (plain, enlisted) == ("kernels.sort", "mps.metal")


def test_what_the_hook_loads_computes() -> None:
    (offered,) = torchyard_implementations(contract=TOPK)
    with emulated():
        assert torch.equal(offered.load()(_CALL).indices, reference_topk(_CALL).indices)
