"""Every native selection gives the bits of torch's stable sort, from any number of threads."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from torchyard import Platform, ReasonCode, probe_platform
from torchyard_cpu import _isa, _native
from torchyard_cpu.topk import MAX_LENGTH, supports
from torchyard_cpu.topk._selection import NativeTopK
from torchyard_kernels import kthvalue, masked_topk, segmented_topk, topk
from torchyard_kernels.topk._ops import FAST_PATH
from torchyard_kernels.topk.contract import DTYPES, Order, TopKCall, TopKRequest

_FEATURES = frozenset(_native.cpu_features())
_KERNELS = [
    (name, dtype)
    for name, dtype, isa in _native.topk_kernels()
    if _isa.feature_sets()[isa] <= _FEATURES
]


def _hard(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> Tensor:
    """Return elements with many equal ones, infinities, NaN of both signs and zeros of both."""
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        x = torch.randint(-60, 60, shape, generator=generator)
        x = x.clamp(max(limits.min, -60), min(limits.max, 60)).to(dtype)
        ends = torch.rand(shape, generator=generator)
        x[ends < 0.02] = limits.min
        x[ends > 0.98] = limits.max
        return x
    x = torch.randn(shape, generator=generator)
    x = torch.where(torch.rand(shape, generator=generator) < 0.3, x.round(), x).to(dtype)
    nan = torch.tensor(float("nan"), dtype=dtype)
    tiny = torch.tensor(torch.finfo(dtype).smallest_normal / 2, dtype=dtype)
    for value in (nan, -nan, nan / 0, tiny, -tiny, torch.tensor(-0.0, dtype=dtype)):
        x[torch.rand(shape, generator=generator) < 0.01] = value
    return x


def _sorted(x: Tensor, k: int, largest: bool) -> Tensor:
    return torch.sort(x, dim=-1, descending=largest, stable=True).indices[..., :k]


def _native_topk(name: str, x: Tensor, k: int, largest: bool, threads: int = 1) -> Tensor:
    """Run one kernel; returns indices after holding values against them."""
    values = x.new_empty((*x.shape[:-1], k))
    indices = torch.empty((*x.shape[:-1], k), dtype=torch.int64)
    rows, length = x.numel() // x.shape[-1], x.shape[-1]
    places = (x.data_ptr(), rows, length, length, 0, 0, 0, k, int(largest), 0)
    _native.topk(name, *places, values.data_ptr(), indices.data_ptr(), threads)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    # As bits: torch's gather makes other NaNs of bfloat16 ones.
    assert torch.equal(values.view(bits), x.view(bits).gather(-1, indices))
    return indices


def test_this_processor_has_kernels_of_every_dtype() -> None:
    assert {dtype for _, dtype in _KERNELS} == set(DTYPES)


@pytest.mark.parametrize(("name", "dtype"), _KERNELS)
def test_a_kernel_orders_as_a_stable_sort(name: str, dtype: str) -> None:
    for seed, (length, k) in enumerate(
        product((1, 2, 63, 64, 700, 5000), (1, 2, 9, 100, 1300, 5000))
    ):
        if k > length:
            continue
        x = _hard(getattr(torch, dtype), (2, length), seed)
        for largest in (True, False):
            found = _native_topk(name, x, k, largest)
            assert torch.equal(found, _sorted(x, k, largest)), (length, k, largest)


@pytest.mark.parametrize(("name", "dtype"), _KERNELS)
@pytest.mark.parametrize("width", [8, 16, 64, 256])
def test_a_row_that_a_sample_says_too_much_of(name: str, dtype: str, width: int) -> None:
    # One stretch in sixteen has all that is good, and nothing else is looked at for a bound.
    length = 40_000
    good = torch.arange(length) // width % 16 == 0
    values = torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(width))
    x = torch.where(good, values + 60, values)[None].to(getattr(torch, dtype))
    for k in (20, 100, 600):
        for largest, rows in ((True, x), (False, 127 - x)):
            assert torch.equal(_native_topk(name, rows, k, largest), _sorted(rows, k, largest))


@pytest.mark.parametrize(("name", "dtype"), _KERNELS)
@pytest.mark.parametrize("width", [8, 16, 64, 128, 256])
def test_a_row_that_a_sample_says_a_little_too_much_of(name: str, dtype: str, width: int) -> None:
    # More are best, and looked at for a bound, than a first look allows for, and fewer than a
    # second does.
    length = 40_000
    values = torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(width))
    looked_at = (torch.arange(length) // width % 32 == 0).nonzero()[:, 0]
    for k, best in ((30, 7), (100, 23), (200, 23), (600, 40)):
        values[looked_at[:best]] = torch.arange(best) + 60
        x = values[None].to(getattr(torch, dtype))
        for largest, rows in ((True, x), (False, 127 - x)):
            assert torch.equal(_native_topk(name, rows, k, largest), _sorted(rows, k, largest))


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, dtype in _KERNELS if "float" in dtype]
)
def test_every_nan_is_the_same_to_a_kernel(name: str, dtype: str) -> None:
    kind = getattr(torch, dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[kind.itemsize]
    infinity = int(torch.tensor(float("inf"), dtype=kind).view(bits))
    sign = torch.iinfo(bits).min
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1, 6000, generator=generator).to(kind)
    x[0, torch.randperm(6000, generator=generator)[:200]] = float("inf")
    at = torch.randperm(6000, generator=generator)
    # Of each sign the least, and the greatest, that are no infinities.
    for place, nan in enumerate((infinity + 1, sign + infinity + 1, torch.iinfo(bits).max, -1)):
        x.view(bits)[0, at[place * 5 : place * 5 + 5]] = nan
    for k in (9, 19, 20, 21, 100):
        for largest in (True, False):
            found = _native_topk(name, x, k, largest)
            assert torch.equal(found, _sorted(x, k, largest)), (k, largest)


@pytest.mark.parametrize(("name", "dtype"), _KERNELS)
def test_a_kernel_needs_no_alignment_beyond_an_elements(name: str, dtype: str) -> None:
    x = _hard(getattr(torch, dtype), (1, 3001), 3)
    for offset in (1, 3, 7):
        part = x[:, offset:].clone(memory_format=torch.contiguous_format)
        moved = torch.empty(part.numel() + offset, dtype=x.dtype)[offset:]
        moved.copy_(part[0])
        found = _native_topk(name, moved[None], 40, True)
        assert torch.equal(found, _sorted(moved[None], 40, True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_threads_that_share_a_row_select_the_same(dtype: str, rows: int) -> None:
    name = _native.select_topk(dtype, _FEATURES)
    assert name is not None
    x = _hard(getattr(torch, dtype), (rows, 150_000), 5)
    rising = x.sort(-1).values
    for given_rows, k in product((x, rising), (1, 64, 3000)):
        expected = _sorted(given_rows, k, True)
        for threads in (1, 2, 4):
            assert torch.equal(_native_topk(name, given_rows, k, True, threads), expected)


def test_what_is_left_of_a_buffer_is_no_result() -> None:
    # The second call's buffers hold the first one's keys.
    first = torch.full((1, 20_000), 9.0)
    second = torch.arange(20_000.0)[None]
    kernel = NativeTopK("")
    for x in (first, second):
        found = kernel(TopKCall(x, 500, True, Order.SORTED))
        assert torch.equal(found.indices, _sorted(x, 500, True))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({1: "topk_f32"}, "kernel: expected a name that topk_kernels"),
        ({3: -1}, "rows, length: expected sizes of at least 0"),
        ({4: 1 << 31}, "length: expected less than"),
        ({9: 0}, "k: expected at least 1"),
        ({11: 3}, "order: expected 0, 1 or 2"),
        ({14: 0}, "threads: expected at least 1"),
    ],
)
def test_native_code_names_what_does_not_fit(change: dict[int, object], text: str) -> None:
    given = [_KERNELS[0][0], 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1]
    for place, value in change.items():
        given[place - 1] = value  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=text):
        _native.topk(*given)  # type: ignore[arg-type]


def test_verdicts() -> None:
    here = probe_platform()
    request = TopKRequest("cpu", "float32", 4, 100, 5)
    assert supports(request, here).supported
    for other, code in (
        (TopKRequest("xpu", "float32", 4, 100, 5), ReasonCode.DEVICE),
        (TopKRequest("cpu", "bool", 4, 100, 5), ReasonCode.DTYPE),
        (TopKRequest("cpu", "int8", 4, MAX_LENGTH + 1, 5), ReasonCode.SHAPE),
    ):
        assert supports(other, here).code is code
    assert supports(request, here, isa="sse9").code is ReasonCode.ISA
    bare = Platform(**{**_fields(here), "cpu_features": frozenset()})
    assert supports(request, bare, isa="avx2").code is ReasonCode.ISA


def _fields(platform: Platform) -> dict[str, object]:
    return {name: getattr(platform, name) for name in platform.__dataclass_fields__}


def _try_call(path: object, *arguments: object) -> object:
    return path.try_call(*arguments)  # type: ignore[attr-defined]


@settings(max_examples=80)
@given(data=st.data())
def test_the_fast_path_has_the_bits_of_the_op(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    dtype = getattr(torch, data.draw(st.sampled_from(DTYPES)))
    x = _hard(dtype, shape, data.draw(st.integers(0, 1000)))
    if data.draw(st.booleans()) and len(shape) > 2:
        x = x.transpose(0, 1)
    k = data.draw(st.integers(1, x.shape[-1]))
    largest, is_sorted = data.draw(st.booleans()), data.draw(st.booleans())
    # Twice: the first call may be cached, the second takes the fast path.
    first, second = topk(x, k, -1, largest, is_sorted), topk(x, k, -1, largest, is_sorted)
    expected = torch.ops.torchyard_kernels.topk(
        x, None, k, x.dim() - 1, largest, "sorted" if is_sorted else "index"
    )
    for found in (first, second):
        assert torch.equal(found.indices, expected[1])
        torch.testing.assert_close(found.values, expected[0], rtol=0, atol=0, equal_nan=True)
        assert found.values.shape == expected[0].shape
        assert found.values.stride() == expected[0].stride()


@settings(max_examples=80)
@given(data=st.data())
def test_a_repeated_kthvalue_has_the_bits_of_the_op(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    x = _hard(
        getattr(torch, data.draw(st.sampled_from(DTYPES))), shape, data.draw(st.integers(0, 1000))
    )
    if data.draw(st.booleans()) and len(shape) > 2:
        x = x.transpose(0, 1)
    k = data.draw(st.integers(1, x.shape[-1]))
    expected = torch.ops.torchyard_kernels.topk(x, None, k, x.dim() - 1, False, "last")
    for keepdim in (False, True):
        found = kthvalue(x, k, -1, keepdim)
        for one, other in zip(found, expected, strict=True):
            wanted = other if keepdim else other.squeeze(-1)
            torch.testing.assert_close(one, wanted, rtol=0, atol=0, equal_nan=True)
            assert one.stride() == wanted.stride()


def test_a_repeated_kthvalue_takes_the_fast_path() -> None:
    x = torch.randn(3, 11)
    path = NativeTopK("").fast_path(None)
    assert path is not None
    assert path.try_call(x, 4, -1) is None
    path.enable(TopKRequest("cpu", "float32", 3, 11, 4, largest=False, order=Order.LAST))
    found = path.try_call(x, 4, -1)
    assert found is not None
    assert torch.equal(found[0], torch.kthvalue(x, 4).values)
    assert torch.equal(found[1], torch.kthvalue(x, 4).indices)
    for refused in (
        (x, 4, -1, False, True),
        (x, 4, -1, False, None),
        (x, 4, 0),
        (x, 5, -1),
        (x, 0, -1),
        (x, 12, -1),
        (x.double(), 4, -1),
    ):
        assert path.try_call(*refused) is None
    with pytest.raises(TypeError, match="try_call: expected 3, 5, 6 or 7 arguments, got 4"):
        path.try_call(x, 4, -1, False)
    kthvalue(x, 4)
    assert FAST_PATH.try_call(None, x, 4, -1) is not None
    assert kthvalue(x.requires_grad_(), 4).values.grad_fn is not None
    with pytest.raises(ValueError, match="k: expected"):
        kthvalue(x, 12)


@settings(max_examples=80)
@given(data=st.data())
def test_a_repeated_masked_call_has_the_bits_of_the_op(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    x = _hard(getattr(torch, data.draw(st.sampled_from(DTYPES))), shape, 1)
    given = shape if data.draw(st.booleans()) else shape[-1:]
    mask = torch.rand(given, generator=torch.Generator().manual_seed(len(x))) < 0.6
    if data.draw(st.booleans()):
        # Every other of a larger one.
        mask = mask.repeat_interleave(2, -1)[..., ::2]
    k, largest = data.draw(st.integers(1, x.shape[-1])), data.draw(st.booleans())
    expected = torch.ops.torchyard_kernels.topk(
        x, mask.expand(shape), k, x.dim() - 1, largest, "sorted"
    )
    for _ in range(2):
        found = masked_topk(x, mask, k, -1, largest)
        assert torch.equal(found.indices, expected[1])
        torch.testing.assert_close(found.values, expected[0], rtol=0, atol=0, equal_nan=True)


@settings(max_examples=80)
@given(data=st.data())
def test_a_repeated_segmented_call_has_the_bits_of_the_op(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 40))
    x = _hard(getattr(torch, data.draw(st.sampled_from(DTYPES))), (length,), 1)
    bounds = sorted(data.draw(st.lists(st.integers(0, length), min_size=2, max_size=6)))
    offsets = torch.tensor(bounds)
    k, largest = data.draw(st.integers(1, 50)), data.draw(st.booleans())
    expected = torch.ops.torchyard_kernels.segmented_topk(x, offsets, k, largest, "index")
    for _ in range(2):
        found = segmented_topk(x, offsets, k, largest, sorted=False)
        assert torch.equal(found.indices, expected[1])
        torch.testing.assert_close(found.values, expected[0], rtol=0, atol=0, equal_nan=True)


def test_repeated_masked_and_segmented_calls_take_the_fast_path() -> None:
    path = NativeTopK("").fast_path(None)
    assert path is not None
    x, row = torch.randn(3, 11), torch.randn(33)
    mask, offsets = x > 0, torch.tensor([0, 7, 7, 33])
    of_mask, of_segments = (x, 2, -1, True, True, mask), (row, 2, -1, True, True, None, offsets)
    assert path.try_call(*of_mask) is None
    assert path.try_call(*of_segments) is None
    path.enable(TopKRequest("cpu", "float32", 3, 11, 2, masked=True))
    path.enable(TopKRequest("cpu", "float32", 3, 33, 2, segmented=True))
    assert path.try_call(*of_mask[:5]) is None
    for found in (path.try_call(*of_mask), path.try_call(x, 2, -1, True, True, mask[0])):
        assert found is not None
        assert found[0].shape == found[1].shape == (3, 2)
    found = path.try_call(*of_segments)
    assert found is not None
    assert found[1][:, 0].tolist() == [int(row[:7].argmax()), -1, 7 + int(row[7:].argmax())]
    for wrong in (None, x, mask[:, :10], mask[:2], mask.int(), mask[None], mask.T):
        assert path.try_call(*of_mask[:5], wrong) is None
    falling, early, late = ([0, 9, 8, 33], [-1, 7, 8, 33], [0, 7, 8, 34])
    for numbers in (falling, early, late):
        assert path.try_call(*of_segments[:6], torch.tensor(numbers)) is None
        with pytest.raises(ValueError, match="offsets: expected rising numbers from 0 to 33"):
            segmented_topk(row, torch.tensor(numbers), 2)
    for bounds in (None, offsets.int(), offsets[None], offsets[:1], torch.arange(8)[::2]):
        assert path.try_call(*of_segments[:6], bounds) is None
    assert path.try_call(*of_segments[:5], mask, offsets) is None
    assert path.try_call(x, 2, -1, True, True, None, offsets) is None
    rising_backwards = torch._neg_view(torch.tensor([0, 7, 7, 33]))
    for bounds in (rising_backwards, torch._efficientzerotensor((4,), dtype=torch.int64)):
        assert path.try_call(*of_segments[:6], bounds) is None


@pytest.mark.parametrize("k", [2**40, 2**62 + 1, 2**63 - 1])
def test_more_places_than_there_is_memory_for_are_refused_in_the_same_words(k: int) -> None:
    row, offsets, errors = torch.randn(33), torch.tensor([0, 7, 33]), []
    segmented_topk(row, offsets, 4)
    for _ in range(3):
        # Beyond 32 bits k is refused before memory is asked for.
        with pytest.raises((RuntimeError, ValueError)) as caught:
            segmented_topk(row, offsets, k)
        errors.append((caught.type, str(caught.value).partition("you tried")[0]))
    assert len(set(errors)) == 1


def test_the_fast_path_computes_enabled_requests_alone() -> None:
    path = NativeTopK("").fast_path(None)
    assert path is not None
    x = torch.randn(4, 10)
    assert path.try_call(x, 3, -1, True, True) is None
    path.enable(TopKRequest("cpu", "float32", 4, 10, 3))
    found = path.try_call(x, 3, -1, True, True)
    assert found is not None
    torch.testing.assert_close(found[0], torch.topk(x, 3).values)
    assert path.try_call(x, 3, 1, True, True) is not None
    for refused in (
        (x, 3, 0, True, True),
        (x, 3, -1, False, True),
        (x, 3, -1, True, False),
        (x, 3, -1, 1, True),
        (x, 3.0, -1, True, True),
        (x, True, -1, True, True),
        (x, 2, -1, True, True),
        (x, 11, -1, True, True),
        (x, -1, -1, True, True),
        (x[:, ::2], 3, -1, True, True),
        (x.double(), 3, -1, True, True),
        (x.clone().requires_grad_(), 3, -1, True, True),
        (x.numpy(), 3, -1, True, True),
        (torch.empty(4, 10, device="meta"), 3, -1, True, True),
        (torch.tensor(3.0), 1, -1, True, True),
        (torch._efficientzerotensor((4, 10)), 3, -1, True, True),
        (torch.complex(x, x).conj().imag, 3, -1, True, True),
    ):
        assert _try_call(path, *refused) is None, refused[1:]


def test_repeated_calls_take_the_fast_path() -> None:
    x = torch.randn(3, 11)
    topk(x, 2)
    assert FAST_PATH.try_call(None, x, 2, -1, True, True) is not None
    # A gradient takes the way through the dispatcher.
    assert topk(x.requires_grad_(), 2).values.grad_fn is not None
