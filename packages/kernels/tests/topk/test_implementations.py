"""Every implementation of ``topk/1`` selects what the reference selects, ties and NaN included."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard_kernels.topk.contract import Order, TopKCall
from torchyard_kernels.topk.reference import reference_topk

from .cases import IMPLEMENTATIONS, kernel, rows

same = partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
each = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def test_there_is_something_to_hold_against_the_reference() -> None:
    assert "kernels.sort" in IMPLEMENTATIONS


def _agrees(name: str, call: TopKCall) -> None:
    before = call.x.clone()
    found = kernel(name, call)(call)
    expected = reference_topk(call)
    same(found.indices, expected.indices)
    same(found.values, expected.values)
    # Zeros keep their sign, which equality does not show.
    if call.x.dtype.is_floating_point:
        number = ~expected.values.isnan()
        assert torch.equal(found.values.signbit() & number, expected.values.signbit() & number)
    assert found.values.is_contiguous()
    assert found.indices.is_contiguous()
    same(call.x, before)


@each
@settings(max_examples=120)
@given(data=st.data())
def test_whole_rows(name: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 3))
    length = data.draw(st.integers(1, 200))
    x = data.draw(rows((count, length)))
    k = data.draw(st.one_of(st.integers(1, length), st.just(length)))
    order = data.draw(st.sampled_from(Order))
    _agrees(name, TopKCall(x, k, data.draw(st.booleans()), order))


@each
@settings(max_examples=80)
@given(data=st.data())
def test_masked_rows(name: str, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 150))
    x = data.draw(rows((2, length)))
    share = data.draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    mask = torch.rand((2, length), generator=generator) < share
    if data.draw(st.booleans()):
        mask = mask[:1].expand(2, length)
    k = data.draw(st.integers(1, length))
    order = data.draw(st.sampled_from(Order))
    _agrees(name, TopKCall(x, k, data.draw(st.booleans()), order, mask))


@each
@settings(max_examples=80)
@given(data=st.data())
def test_segments(name: str, data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 150))
    x = data.draw(rows((length,)))
    bounds = sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=6)))
    k = data.draw(st.integers(1, 40))
    order = data.draw(st.sampled_from(Order))
    offsets = torch.tensor(bounds)
    _agrees(name, TopKCall(x, k, data.draw(st.booleans()), order, None, offsets))


@each
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("k", [1, 7, 300, 5000])
@pytest.mark.parametrize("shape", ["random", "rising", "falling", "equal", "nan"])
def test_rows_longer_than_any_buffer(name: str, order: Order, k: int, shape: str) -> None:
    made: dict[str, Tensor] = {
        "random": torch.randn(2, 20_000),
        "rising": torch.arange(40_000.0).reshape(2, 20_000),
        "falling": -torch.arange(40_000.0).reshape(2, 20_000),
        "equal": torch.ones(2, 20_000),
        "nan": torch.where(torch.rand(2, 20_000) < 0.6, float("nan"), 1.0),
    }
    for largest in (True, False):
        _agrees(name, TopKCall(made[shape], k, largest, order))


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_elements_that_do_not_lie_side_by_side(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(3, 50, 4).mul(20).to(dtype)
    for strided in (x.transpose(1, 2), x[:, ::2].movedim(0, 2), x[:1].expand(5, 50, 4)):
        _agrees(name, TopKCall(strided, 3, True, Order.SORTED))
        mask = (strided > 3) & (strided < 30)
        _agrees(name, TopKCall(strided, 3, False, Order.SORTED, mask))
