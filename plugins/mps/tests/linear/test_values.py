"""Products in Metal are as near to float64 as a naive computation, and have no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.linear.calls import CALL, LAYOUTS, computed, excess, normal
from torchyard_kernels.linear.contract import LinearCall
from torchyard_mps.linear import multiply, product


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_form_of_a_weight(layout: str, dtype: torch.dtype) -> None:
    weight = LAYOUTS[layout](normal(67, 45, dtype=dtype))
    call = LinearCall(normal(3, 45, dtype=dtype, seed=1), weight, normal(67, dtype=dtype))
    assert excess(call) <= 1


@st.composite
def _calls(draw: st.DrawFn, most: int) -> LinearCall:
    rows, outputs, depth = (draw(st.integers(0, size)) for size in (most // 2, most, 2 * most))
    dtype = draw(st.sampled_from([torch.float16, torch.float32]))
    layouts = list(LAYOUTS) if outputs and depth else ["plain"]
    weight = LAYOUTS[draw(st.sampled_from(layouts))](normal(outputs, depth, dtype=dtype))
    x = normal(rows, depth, dtype=dtype, seed=1)
    shown = {
        "plain": x,
        "transposed": x.t().contiguous().t(),
        "batched": torch.stack([x, x + 1], 1).transpose(0, 1),
    }[draw(st.sampled_from(["plain", "transposed", "batched"]))]
    bias = normal(outputs, dtype=dtype, seed=2) if draw(st.booleans()) else None
    return LinearCall(shown, weight, bias)


@settings(max_examples=6)
@given(call=_calls(70))
def test_sizes(call: LinearCall) -> None:
    assert excess(call) <= 1


@pytest.mark.sweep
@settings(max_examples=100)
@given(call=_calls(140))
def test_many_sizes(call: LinearCall) -> None:
    assert excess(call) <= 1


def test_batches_have_weights_of_their_own() -> None:
    call = LinearCall(normal(3, 5, 40, seed=1), normal(3, 33, 40).transpose(0, 1).transpose(0, 1))
    assert excess(call) <= 1


def test_a_product_is_rounded_once_to_another_dtype() -> None:
    call = replace(CALL, bias=None)
    with emulated():
        wide, narrow = product(call, torch.float32), multiply(call)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.half(), narrow)
    exact = computed(call, torch.float64)
    assert (wide.double() - exact).abs().max() < 1e-5 * exact.abs().max()


def test_rows_do_not_affect_one_another() -> None:
    x = normal(5, 40, seed=1)
    x[2] = torch.nan
    call = LinearCall(x, normal(33, 40))
    with emulated():
        out = multiply(call)
    assert out[2].isnan().all()
    assert out[[0, 1, 3, 4]].isfinite().all()


def test_orders_of_threads_change_nothing() -> None:
    assert excess(CALL, orders=3, address_sanitizer=True) <= 1
