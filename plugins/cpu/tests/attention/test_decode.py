"""Decode kernels: few query rows, keys and values read in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from torchyard_cpu import _isa, _native
from torchyard_cpu._tuning.tunables import frozen
from torchyard_cpu.attention import DTYPES, _forward

if TYPE_CHECKING:
    from plugins.cpu.tests.conftest import Attention

KERNELS = [
    pytest.param(name, getattr(torch, dtype), id=name.removeprefix("attention_decode_"))
    for name, dtype, _, needed in _native.decode_kernels()
    if set(needed) <= set(_native.cpu_features())
]
each_kernel = pytest.mark.parametrize(("kernel", "dtype"), KERNELS)


def inputs(
    dtype: torch.dtype,
    *,
    batches: int = 2,
    heads: tuple[int, int] = (4, 2),
    rows: int = 1,
    keys: int = 700,
    dims: tuple[int, int] = (40, 40),
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randn(batches, heads[0], rows, dims[0]).to(dtype),
        torch.randn(batches, heads[1], keys, dims[0]).to(dtype),
        torch.randn(batches, heads[1], keys, dims[1]).to(dtype),
    )


@pytest.mark.parametrize("keys", [0, 1, 15, 16, 63, 64, 65, 129, 511, 512, 513, 1100])
@each_kernel
def test_every_number_of_keys_is_within_the_bound(
    attention: Attention, kernel: str, dtype: torch.dtype, keys: int
) -> None:
    attention.check(kernel, *inputs(dtype, keys=keys), row_padding=3)


@pytest.mark.parametrize(
    "dims",
    [(1, 1), (8, 8), (17, 5), (64, 64), (72, 80), (128, 128), (192, 128), (256, 255), (33, 256)],
)
@each_kernel
def test_every_head_size_is_within_the_bound(
    attention: Attention, kernel: str, dtype: torch.dtype, dims: tuple[int, int]
) -> None:
    attention.check(kernel, *inputs(dtype, keys=100, dims=dims))


@pytest.mark.parametrize(
    ("heads", "rows"),
    [
        ((1, 1), 1),
        ((2, 1), 1),
        ((3, 1), 1),
        ((8, 2), 1),
        ((5, 1), 1),
        ((16, 1), 1),
        ((2, 2), 16),
        ((2, 1), 8),
        ((6, 2), 5),
        ((4, 4), 3),
    ],
)
@each_kernel
def test_every_number_of_rows_is_within_the_bound(
    attention: Attention, kernel: str, dtype: torch.dtype, heads: tuple[int, int], rows: int
) -> None:
    attention.check(kernel, *inputs(dtype, heads=heads, rows=rows), threads=2)


@pytest.mark.parametrize("block_size", [(128, 128), (1, 64), (4, 40), (3, 13), (16, 1000), (2, 1)])
@pytest.mark.parametrize("shape", [(1, 1), (2, 4), (1, 4), (2, 1)])
@each_kernel
def test_masks_hide_what_they_say(
    attention: Attention,
    kernel: str,
    dtype: torch.dtype,
    shape: tuple[int, int],
    block_size: tuple[int, int],
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype, rows=5, keys=600)
    visible = torch.rand(*shape, 5, 600) < 0.4
    visible[..., 100:400] = False
    visible[..., 430:580] = True
    visible[..., 2, :] = False
    mask = block_mask(visible, block_size)
    attention.check(kernel, query, key, value, visible=visible, mask=mask, threads=2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["key", "value"])
@each_kernel
def test_what_a_row_does_not_see_does_not_reach_it(
    attention: Attention, kernel: str, dtype: torch.dtype, place: str, bad: float
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype, rows=4)
    visible = torch.ones(1, 1, 4, 700, dtype=torch.bool).tril(600)
    mask = block_mask(visible, (64, 64))
    clean = attention.run(kernel, query, key, value, mask=mask)
    (key if place == "key" else value)[:, :, [602, 640, 699], 3] = bad
    got = attention.run(kernel, query, key, value, mask=mask)

    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got.out[:, :, :2], clean.out[:, :, :2], rtol=eps, atol=eps)
    torch.testing.assert_close(got.lse[:, :, :2], clean.lse[:, :, :2], rtol=1e-5, atol=1e-5)
    assert not torch.equal(got.out[:, :, 2:].nan_to_num(), clean.out[:, :, 2:])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 600])
@each_kernel
def test_a_visible_score_that_is_no_number_makes_its_row_nan(
    attention: Attention, kernel: str, dtype: torch.dtype, bad: float, at: int
) -> None:
    query, key, value = inputs(dtype)
    query[:, :, :, 0] = 1.0
    key[0, 0, at, 0] = bad
    got = attention.run(kernel, query, key, value)

    assert got.out[0, :2].isnan().all()
    assert got.lse[0, :2].isnan().all()
    assert got.out[1].isfinite().all()
    assert got.out[0, 2:].isfinite().all()


@each_kernel
def test_rows_whose_scores_are_all_minus_infinity_are_empty(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query, key, value = inputs(dtype)
    query[0, 0, 0, 0] = 1.0
    query[0, 1, 0, 0] = 1.0
    key[0, 0, :, 0] = -math.inf
    value[0, 0, 3] = math.inf
    got = attention.run(kernel, query, key, value)

    assert torch.equal(got.out[0, :2], torch.zeros(2, 1, 40, dtype=dtype))
    assert got.lse[0, :2].isneginf().all()


@each_kernel
def test_a_late_and_steep_maximum_is_within_the_bound(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query, key, value = inputs(dtype)
    query *= 30
    key *= torch.linspace(0.1, 3, 700)[:, None].to(dtype)
    attention.check(kernel, query, key, value)


@pytest.mark.parametrize("masked", [False, True])
@each_kernel
def test_results_have_the_same_bits_for_any_number_of_threads(
    attention: Attention, kernel: str, dtype: torch.dtype, masked: bool
) -> None:
    from plugins.cpu.tests.conftest import block_mask

    query, key, value = inputs(dtype, rows=2, keys=5000, dims=(64, 64))
    mask = block_mask(torch.rand(2, 4, 2, 5000) < 0.4, (2, 96)) if masked else None
    alone = attention.run(kernel, query, key, value, mask=mask)
    for threads in (2, 3, 64):
        together = attention.run(kernel, query, key, value, mask=mask, threads=threads)
        assert torch.equal(alone.out, together.out), f"{threads} threads"
        assert torch.equal(alone.lse, together.lse), f"{threads} threads"


@each_kernel
def test_a_row_does_not_notice_its_companions(
    attention: Attention, kernel: str, dtype: torch.dtype
) -> None:
    query, key, value = inputs(dtype, batches=3, heads=(8, 2))
    together = attention.run(kernel, query, key, value)
    for batch in range(3):
        one = slice(batch, batch + 1)
        alone = attention.run(kernel, query[one], key[one], value[one])
        assert torch.equal(alone.out, together.out[one])


@pytest.mark.parametrize("layout", ["heads after rows", "sliced", "expanded", "unaligned"])
@each_kernel
def test_strides_are_followed(
    attention: Attention, kernel: str, dtype: torch.dtype, layout: str
) -> None:
    def laid_out(x: Tensor) -> Tensor:
        if layout == "heads after rows":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        if layout == "expanded":
            return x[:1].expand_as(x)
        room = torch.full((*x.shape[:3], x.shape[3] + 5), math.nan, dtype=x.dtype)
        start = 1 if layout == "unaligned" else 0
        room[..., start : start + x.shape[3]] = x
        return room[..., start : start + x.shape[3]]

    attention.check(kernel, *(laid_out(x) for x in inputs(dtype, rows=3)))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((32, 8, 1), True),
        ((32, 8, 4), True),
        ((32, 8, 5), False),
        ((16, 1, 1), True),
        ((17, 1, 1), False),
        ((8, 8, 16), True),
        ((8, 8, 17), False),
        ((1, 1, 0), True),
    ],
)
def test_the_sizes_alone_decide_whether_a_call_is_decoding(
    sizes: tuple[int, int, int], expected: bool
) -> None:
    assert _forward.decodes(*sizes) is expected


def test_the_implementation_decodes_by_a_decode_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchyard_attention.contract import AttentionCall

    called: list[str] = []
    for name in ("attention_decode", "attention_forward"):
        original = getattr(_native, name)

        def run(kernel: str, *rest: Any, original: Any = original) -> None:
            called.append(kernel)
            original(kernel, *rest)

        monkeypatch.setattr(_native, name, run)
    forward = _forward.NativeForward("scalar")
    for rows in (16, 17):
        query = torch.randn(1, 1, rows, 8)
        forward(AttentionCall(query, query, query, None, None, 1.0, lse=True, max_scores=False))

    assert called == ["attention_decode_f32_scalar", "attention_forward_f32_6x8_scalar"]


def test_decode_kernels_are_those_of_the_instruction_sets() -> None:
    table = {isa: frozenset(needed) for _, _, isa, needed in _native.decode_kernels()}

    assert table.items() <= _isa.feature_sets().items()
    for dtype in DTYPES:
        for features in [(), *_isa.feature_sets().values()]:
            forward = _native.select_kernel(dtype, features, None)
            decode = _native.select_decode(dtype, features, None)
            assert forward is not None
            assert decode is not None
            # A query's few rows fill no matrix tile.
            expected = forward.rpartition("_")[2].replace("amx", "avx512bf16")
            assert decode.rpartition("_")[2] == expected


def test_too_many_rows_are_refused() -> None:
    name = _native.select_decode("float32", (), None)
    assert name is not None
    place = (0, 0, 0, 0)
    with pytest.raises(ValueError, match="at most 16 query rows per key head, got 17 heads of 1"):
        _native.attention_decode(
            name,
            (0, 17, 1, 1, 0, 8, 8),
            place,
            place,
            place,
            place,
            0,
            1.0,
            None,
            frozen("*"),
            None,
            0,
            1,
            False,
        )


def test_memory_that_cannot_be_had_is_a_memory_error() -> None:
    name = _native.select_decode("float32", (), None)
    assert name is not None
    place = (0, 0, 0, 0)
    with pytest.raises(MemoryError):
        _native.attention_decode(
            name,
            (1, 1, 1, 1, 1 << 50, 8, 8),
            place,
            place,
            place,
            place,
            0,
            1.0,
            None,
            frozen("*"),
            None,
            0,
            1,
            False,
        )
