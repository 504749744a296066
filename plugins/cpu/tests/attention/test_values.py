"""What kernels do with NaN, infinities, huge scores and late maxima."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

from torchyard_cpu import _native

if TYPE_CHECKING:
    from plugins.cpu.tests.conftest import Attention

KERNELS = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_forward_"))
    for name, dtype, _, needed in _native.kernels()
    if set(needed) <= set(_native.cpu_features())
]
each_kernel = pytest.mark.parametrize(("kernel", "dtype"), KERNELS)


def inputs(
    dtype: torch.dtype, rows: int = 140, keys: int = 200, size: int = 40
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(1, 2, rows, size).to(dtype),
        torch.randn(1, 1, keys, size).to(dtype),
        torch.randn(1, 1, keys, size).to(dtype),
    )


def causal(rows: int, keys: int) -> Tensor:
    return (torch.arange(rows)[:, None] >= torch.arange(keys)[None, :])[None, None]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["key", "value"])
@each_kernel
def test_what_a_row_does_not_see_does_not_reach_it(
    attention: Attention, kernel: str, dtype: torch.dtype, place: str, bad: float
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype)
    visible = causal(140, 200)
    mask = block_mask(visible, (64, 64))
    clean = attention.run(kernel, query, key, value, mask=mask)
    # Key 70 lies inside of a panel that rows above and below it share; keys 141 and up are unseen.
    (key if place == "key" else value)[0, 0, [70, 141, 199], 3] = bad
    got = attention.run(kernel, query, key, value, mask=mask)

    # The same keys through the exact softmax and one multiplication at a time: close, not equal.
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got.out[:, :, :70], clean.out[:, :, :70], rtol=eps, atol=8 * eps)
    torch.testing.assert_close(got.lse[:, :, :70], clean.lse[:, :, :70], rtol=1e-5, atol=1e-5)


@each_kernel
def test_nan_in_a_visible_key_makes_its_rows_nan(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype)
    key[0, 0, 70, 3] = math.nan
    mask = block_mask(causal(140, 200), (64, 64))
    got = attention.run(kernel, query, key, value, mask=mask)

    assert got.out[:, :, 70:].isnan().all()
    assert got.lse[:, :, 70:].isnan().all()
    assert got.out[:, :, :70].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@each_kernel
def test_what_a_visible_value_holds_reaches_its_column(
    attention: Attention, kernel: str, dtype: torch.dtype, bad: float
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype)
    value[0, 0, 70, 3] = bad
    mask = block_mask(causal(140, 200), (64, 64))
    got = attention.run(kernel, query, key, value, mask=mask)

    column = got.out[:, :, 70:, 3]
    assert (column.isnan() if math.isnan(bad) else column.isposinf()).all()
    assert got.out[..., 4:].isfinite().all()
    assert got.lse.isfinite().all()


@each_kernel
def test_infinite_scores_end_as_in_float32(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query = torch.ones(1, 1, 2, 16).to(dtype)
    query[0, 0, 1] = -1.0
    key, value = torch.randn(2, 1, 1, 150, 16).to(dtype)
    key[0, 0, 140, 0] = math.inf
    got = attention.run(kernel, query, key, value)
    visible = torch.arange(150) != 140
    without = attention.exact(query, key, value, visible=visible)

    assert got.out[0, 0, 0].isnan().all(), "inf - inf"
    assert got.lse[0, 0, 0].isnan()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        got.out[0, 0, 1].double(), without.out[0, 0, 1], rtol=0, atol=4 * eps
    )


@each_kernel
def test_rows_of_minus_infinity_count_as_empty(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query = torch.ones(1, 1, 7, 16).to(dtype)
    key, value = torch.randn(2, 1, 1, 70, 16).to(dtype)
    key[..., 0] = -math.inf
    got = attention.run(kernel, query, key, value)

    assert (got.out == 0).all()
    assert got.lse.isneginf().all()


@pytest.mark.parametrize("scale", [30.0, -30.0, 1e4])
@each_kernel
def test_rows_are_right_where_scores_are_huge(
    attention: Attention, kernel: str, dtype: torch.dtype, scale: float
) -> None:
    # Whole numbers: their sums are exact, and scores differ by the rounding of the scale alone.
    query = torch.randint(-2, 3, (1, 2, 50, 16)).to(dtype)
    key = torch.randint(-2, 3, (1, 1, 700, 16)).to(dtype)
    value = torch.randn(1, 1, 700, 24).to(dtype)
    attention.check(kernel, query, key, value, scale=scale)


@pytest.mark.parametrize("step", [0.5, 4.0, 40.0])
@each_kernel
def test_rows_are_right_where_the_maximum_comes_late(
    attention: Attention, kernel: str, dtype: torch.dtype, step: float
) -> None:
    query = torch.ones(1, 1, 20, 8).to(dtype)
    key = torch.zeros(1, 1, 1200, 8).to(dtype)
    # Scores rise by `step` every eight keys, far beyond what the first panel's maximum allows.
    key[0, 0, :, 0] = (torch.arange(1200) // 8 * step).to(dtype)
    value = torch.randn(1, 1, 1200, 16).to(dtype)
    attention.check(kernel, query, key, value, scale=1.0)


@each_kernel
def test_huge_values_do_not_overflow_under_late_maxima(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query = torch.ones(1, 1, 7, 8).to(dtype)
    key = torch.zeros(1, 1, 600, 8).to(dtype)
    key[0, 0, 64:, 0] = 20.0
    value = torch.full((1, 1, 600, 16), min(1e35, torch.finfo(dtype).max)).to(dtype)
    got = attention.run(kernel, query, key, value, scale=1.0)

    assert got.out.isfinite().all()
    torch.testing.assert_close(got.out.double(), value[:, :, :7].double(), rtol=1e-2, atol=0)


@each_kernel
def test_a_row_whose_first_panels_are_hidden_finds_its_reference_later(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype, rows=14, keys=400)
    query *= 8
    visible = torch.ones(1, 1, 14, 400, dtype=torch.bool)
    # Within a tile some rows see the first panel and others see one key, far behind.
    visible[0, 0, 3, :390] = False
    visible[0, 0, 4, :] = False
    visible[0, 0, 9, :399] = False
    attention.check(
        kernel, query, key, value, visible=visible, mask=block_mask(visible, (128, 128))
    )


@pytest.mark.parametrize("later", [False, True])
@each_kernel
def test_only_what_a_tile_sees_of_a_panel_is_computed_and_takes_part(
    attention: Attention, kernel: str, dtype: torch.dtype, later: bool
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    # Each tile sees an interval of the second panel: on either side of every step that some kernel
    # takes, in a row's first panel or in a later one.
    edges = [0, 1, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64]
    intervals = [(first, end) for first in edges for end in edges if first < end]
    tile_rows = 16 if "amx" in kernel else 6
    query, key, value = inputs(dtype, rows=tile_rows * len(intervals), keys=192)
    visible = torch.zeros(1, 1, tile_rows, len(intervals), 192, dtype=torch.bool)
    for number, (first, end) in enumerate(intervals):
        visible[..., number, 64 + first : 64 + end] = True
    visible[..., :64] = later
    visible = visible.transpose(2, 3).flatten(2, 3)
    mask = block_mask(visible, (tile_rows, 64))
    attention.check(kernel, query, key, value, visible=visible, mask=mask)

    # The same rows beside one that sees all of the panel: then all of it is computed.
    last = torch.arange(query.shape[2]) % tile_rows == tile_rows - 1
    visible[:, :, last, 64:128] = True
    alone = attention.run(kernel, query, key, value, mask=mask)
    mask = block_mask(visible, (tile_rows, 64))
    beside = attention.run(kernel, query, key, value, mask=mask)
    assert torch.equal(alone.out[:, :, ~last], beside.out[:, :, ~last])
    assert torch.equal(alone.lse[:, :, ~last], beside.lse[:, :, ~last])
