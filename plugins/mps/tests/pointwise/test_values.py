"""Maps over lists in Metal give what their program gives in float64, and have no finding."""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from packages.programs.tests.words import WORDS, Word, values
from plugins.mps.tests.emulated import emulated
from plugins.mps.tests.pointwise.calls import call_of, excess, normal
from torchyard_conformance._kernels._cases._pointwise import GRIDS, PointwiseCase
from torchyard_conformance._kernels._ruler import compare
from torchyard_kernels.pointwise.contract import POINTWISE
from torchyard_mps.pointwise import compute, map_launches

_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
_INTEGERS: Final = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_CASES: Final = {
    f"{law}-{name}": case
    for law in ("matches", "written", "not-finite", "any-memory")
    for name, case in GRIDS[POINTWISE][law].items()
    # Metal has no float64.
    if case.dtype != "float64"
}


def _ratio(case: PointwiseCase) -> float:
    """Return the greatest error of a case of the conformance kit over its bound."""
    (call,) = case.given()
    with emulated():
        results = compute(call)
    return max(compare(case, case.named_outputs(call.out or results)).values())


@pytest.mark.parametrize("name", [name for name in _CASES if "large" not in name][::4])
def test_some_cases_of_the_kit(name: str) -> None:
    assert _ratio(_CASES[name]) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", _CASES)
def test_each_case_of_the_kit(name: str) -> None:
    assert _ratio(_CASES[name]) <= 1


_SHAPES: Final = [(3, 4), (1037,), (0,), (2, 3, 5), (2048,), (1,), (5, 0, 2), (1, 1)]


def _chained(x: Any, y: Any, a: Any) -> Any:
    return torch.tanh(x) * y - torch.exp(x * a) / (y * y + 1)


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_groups_of_many_sizes(dtype: torch.dtype) -> None:
    xs, ys = normal(_SHAPES, dtype), normal(_SHAPES, dtype, 1)
    assert excess(call_of(_chained, xs, ys, [0.5] * len(xs))) <= 1
    # A tensor of no dimensions is another kind of operand, and makes a call of its own.
    assert excess(call_of(_chained, normal([()], dtype), normal([()], dtype, 1), [0.5])) <= 1


@pytest.mark.parametrize("dtype", _INTEGERS, ids=str)
def test_integers_wrap_around_as_torchs(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.max, 0, 1, 7, 100], dtype=dtype)
    y = torch.tensor([3, 2, 5, limits.max, limits.min, 100], dtype=dtype)

    def function(x: Any, y: Any, n: Any) -> Any:
        return x + y, x * y - n, -x, torch.abs(y), x & y, x > y, x / 4

    assert excess(call_of(function, [x, x[:3]], [y, y[3:]], [3, -5])) <= 1


def test_half_precision_loses_nothing_between_steps() -> None:
    xs = [torch.full((64,), 2048.0, dtype=torch.float16)]
    table = torch.tensor([2048.0], dtype=torch.float16)
    zero = [torch.zeros(64, dtype=torch.int64)]
    with emulated():
        assert torch.equal(compute(call_of(lambda x: (x + 1) - 2048, xs))[0][0], xs[0] / 2048)
        # A conversion in the function rounds: 2049 is no float16.
        (found,) = compute(call_of(lambda x: (x + 1).half() - 2048, xs))
        assert not found[0].any()
        (found,) = compute(call_of(lambda i: (table[i] + 1) - 2048, zero))
        assert torch.equal(found[0], xs[0] / 2048)


@st.composite
def _operands(draw: st.DrawFn) -> list[Tensor]:
    dtypes = [*_FLOATS, *_INTEGERS, torch.bool]
    shape = draw(st.lists(st.integers(0, 4), min_size=0, max_size=4))

    def operand() -> Tensor:
        cut = draw(st.integers(0, len(shape)))
        own = [1 if size and draw(st.booleans()) else size for size in shape[cut:]]
        generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
        tensor = torch.randint(0, 4, own, generator=generator).to(draw(st.sampled_from(dtypes)))
        if tensor.dim() > 1 and draw(st.booleans()):
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        return tensor

    return [operand(), operand(), operand()]


def _agrees_with_torch(operands: list[Tensor]) -> None:
    def function(x: Any, y: Any, z: Any) -> Any:
        return torch.where(x > y, x * 2 + y, y), z == 1

    shape = torch.broadcast_shapes(*(operand.shape for operand in operands))
    with emulated():
        found = compute(call_of(function, *([operand] for operand in operands)))
    for (result,), wanted in zip(found, function(*operands), strict=True):
        assert (result.dtype, result.shape) == (wanted.dtype, shape)
        assert torch.equal(result, wanted.expand(shape))


@settings(max_examples=10)
@given(operands=_operands())
def test_tensors_broadcast_and_promote_as_torchs(operands: list[Tensor]) -> None:
    _agrees_with_torch(operands)


@pytest.mark.sweep
@settings(max_examples=200)
@given(operands=_operands())
def test_many_tensors_broadcast_and_promote(operands: list[Tensor]) -> None:
    _agrees_with_torch(operands)


def test_numbers_are_those_of_their_group() -> None:
    xs = normal([(5,), (2, 3)])
    assert excess(call_of(lambda x, a, n: x * a + n, xs, [0.1, 1e30], [3, -4])) <= 1
    chosen = call_of(lambda x, flag: torch.where(x > 0, flag, False), xs, [True, False])
    assert excess(chosen) <= 1
    assert excess(call_of(lambda x, a: (x, a, 2), xs, [0.1, -torch.inf])) <= 1


def test_numbers_are_computed_with_one_another_in_float64() -> None:
    ones = [torch.ones(3), torch.ones(2)]
    with emulated():
        # In float32 1 + 1e-9 is 1, and 1 - 0.999 ** 1 would be off by 5e-5.
        (near,) = compute(call_of(lambda x, a: x * ((a - 1) * 1e9), ones, [1 + 1e-9, 1.0]))
        (rates,) = compute(call_of(lambda x, b, t: x / (1 - b**t), ones, [0.999] * 2, [1, 3]))
    assert [float(one[0]) for one in near] == pytest.approx([1.0, 0.0], rel=1e-6)
    right = [1 / (1 - 0.999**step) for step in (1, 3)]
    assert [float(one[0]) for one in rates] == pytest.approx(right, rel=1e-7)


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_captured_tensors(dtype: torch.dtype) -> None:
    row, scale = normal([(3,)], dtype, 7)[0], torch.tensor(0.5, dtype=dtype)
    xs = normal([(2, 3), (4, 1), (0, 3)], dtype, 3)
    assert excess(call_of(lambda x: x * scale + row, xs)) <= 1
    table = normal([(6,)], dtype, 8)[0][::2]
    indices = [torch.tensor([0, 2, -1]), torch.tensor([[1], [-1], [-3]])]
    assert excess(call_of(lambda i: table[i] * scale + i, indices)) <= 1


def test_what_a_captured_tensor_does_not_have_is_nan() -> None:
    table = torch.ones(2)
    with emulated():
        ((found,),) = compute(call_of(lambda i: table[i], [torch.tensor([1, 5])]))
    assert found.isnan().tolist() == [False, True]


def test_results_are_written_in_place() -> None:
    ps, gs = normal([(40,), (3, 5), (0,)], seed=4), normal([(40,), (3, 5), (0,)], seed=5)
    ps[1] = ps[1].t().contiguous().t()
    call = call_of(lambda p, g: (p - 0.1 * g, p * g), ps, gs, out=(ps, gs))
    (launch,), _ = map_launches(call)
    # Two of each group, and the table: what is written to an input has no buffer of its own.
    assert (len(launch.buffers), len(launch.updated), launch.outputs) == (5, 4, ())
    assert excess(call) <= 1
    swapped = call_of(lambda x, y: (y, x), ps, gs, out=(ps, gs))
    assert excess(swapped) <= 1


def test_results_are_written_to_tensors_of_any_layout_and_dtype() -> None:
    x, y = normal([(6, 8), (8,)])
    out = torch.zeros(8, 12, dtype=torch.bfloat16).t()[::2]
    assert excess(call_of(lambda x, y: x + y / 3, [x], [y], out=([out],))) <= 1
    wide = torch.zeros(6, 8)
    assert excess(call_of(lambda x: x > 0, [x], out=([wide],))) <= 1


def test_a_launch_takes_as_many_groups_as_there_are_buffers_for() -> None:
    xs, ys = normal([(5,), (33,), (2, 9)] * 9), normal([(5,), (33,), (2, 9)] * 9, seed=1)
    call = call_of(lambda x, y: x * y + 1, xs, ys)
    launches, _ = map_launches(call)
    assert [len(launch.buffers) for launch in launches] == [31, 31, 22]
    assert excess(call) <= 1


def test_nothing_is_launched_for_nothing() -> None:
    assert map_launches(call_of(lambda x: x + 1, [torch.ones(0), torch.ones(3, 0)]))[0] == []


def test_orders_of_threads_change_nothing() -> None:
    xs, ys = normal([(1037,), (5, 3)]), normal([(1,), (3,)], seed=1)
    options = {"orders": 3, "address_sanitizer": True}
    assert excess(call_of(_chained, xs, ys, [0.5, 2.0]), **options) <= 1


# Metal has no float64.
_TRIED: Final = [word for word in WORDS if word.word != "double"]
# Inputs are four, and results of a launch so many at most.
_MOST: Final = 25


def _batches() -> list[list[Word]]:
    """Return words by domain, and as many at once as a launch has buffers for."""
    domains = {word.domain: None for word in _TRIED}
    words = [[word for word in _TRIED if word.domain is domain] for domain in domains]
    return [of[start : start + _MOST] for of in words for start in range(0, len(of), _MOST)]


@pytest.mark.parametrize("batch", _batches(), ids=lambda batch: f"{batch[0].word}-{len(batch)}")
def test_the_whole_vocabulary(batch: list[Word]) -> None:
    given = values(batch[0])

    def function(x: Any, y: Any, i: Any, j: Any) -> Any:
        return tuple(word.function(x, y, i, j) for word in batch)

    with emulated():
        found = compute(call_of(function, *([item] for item in given)))
    wide = [item.double() if item.is_floating_point() else item for item in given]
    for word, (got,) in zip(batch, found, strict=True):
        _check_word(word, got, word.function(*given), word.function(*wide))


def _check_word(word: Word, got: Tensor, narrow: Tensor, wide: Tensor) -> None:
    assert got.dtype == narrow.dtype
    rounds = narrow.dtype in (torch.float16, torch.bfloat16) or word.word == "to"
    wanted = (narrow if rounds or not got.is_floating_point() else wide).double()
    finite, value = wanted.isfinite(), got.double()
    torch.testing.assert_close(value[~finite], wanted[~finite], equal_nan=True)
    error = (value[finite] - wanted[finite]).abs() / wanted[finite].abs().clamp_min(1.0)
    # A product of halves is rounded once, where torch rounds its factors alone too.
    eps = torch.finfo(got.dtype).eps if rounds else torch.finfo(torch.float32).eps
    assert float(error.max()) <= word.tolerance * eps, word.word
