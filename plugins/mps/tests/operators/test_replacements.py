"""What computes operators on the device gives what torch's kernels of the CPU give."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from torchyard_mps.operators._on_cpu import kernel_on_cpu
from torchyard_mps.operators._registration import kernels_registered
from torchyard_mps.operators.replacements import REPLACEMENTS, Replacement

_KERNELS: Final = {name: kernel for one in REPLACEMENTS for name, kernel in one.kernels.items()}
# Of sums of up to eight products, in units of the largest result.
_SUMS: Final = 8 * torch.finfo(torch.float32).eps


def _torchs(operator: str) -> Any:
    name, _, overload = operator.partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


def _both(operator: str, *arguments: Any, **named: Any) -> tuple[Any, Any]:
    """Return ours and torch's result, each of copies of the tensors."""

    def copied(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    found = []
    for kernel in (_KERNELS[operator], _torchs(operator)):
        own = {key: copied(one) for key, one in named.items()}
        found.append(kernel(*map(copied, arguments), **own))
    return found[0], found[1]


def _drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


_SEEDS: Final = st.integers(0, 2**31)
_SIZES: Final = st.lists(st.integers(0, 5), max_size=4)


@settings(max_examples=60, deadline=None)
@given(sizes=_SIZES, seed=_SEEDS, dtype=st.sampled_from([torch.float32, torch.int64, torch.bool]))
def test_nonzero(sizes: list[int], seed: int, dtype: torch.dtype) -> None:
    ours, torchs = _both("nonzero", _drawn(tuple(sizes), seed).round().to(dtype))
    assert torch.equal(ours, torchs)
    assert ours.dtype == torchs.dtype


@settings(max_examples=60, deadline=None)
@given(sizes=_SIZES, data=st.data(), seed=_SEEDS, keepdim=st.booleans())
def test_kthvalue(sizes: list[int], data: st.DataObject, seed: int, keepdim: bool) -> None:
    x = _drawn((*sizes, 3), seed).movedim(-1, data.draw(st.integers(0, len(sizes))))
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1).filter(lambda at: x.shape[at] > 0))
    k = data.draw(st.integers(1, x.shape[dim]))
    out = {"values": x.new_empty(0), "indices": torch.empty(0, dtype=torch.int64)}
    ours, torchs = _both("kthvalue.values", x, k, dim, keepdim, **out)
    for one, other in zip(ours, torchs, strict=True):
        assert torch.equal(one, other)


@settings(max_examples=80, deadline=None)
@given(sizes=_SIZES, data=st.data(), seed=_SEEDS, keepdim=st.booleans(), whole=st.booleans())
def test_mode(sizes: list[int], data: st.DataObject, seed: int, keepdim: bool, whole: bool) -> None:
    x = _drawn((*sizes, 9), seed).round().movedim(-1, data.draw(st.integers(0, len(sizes))))
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1).filter(lambda at: x.shape[at] > 0))
    ours, torchs = _both("mode", x.int() if whole else x, dim, keepdim)
    for one, other in zip(ours, torchs, strict=True):
        assert torch.equal(one, other)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 5), max_size=3), seed=_SEEDS)
def test_take_and_put(data: st.DataObject, sizes: list[int], seed: int) -> None:
    x = _drawn(tuple(sizes), seed)
    places = st.lists(st.integers(-x.numel(), x.numel() - 1), max_size=9)
    index = torch.tensor(data.draw(places), dtype=torch.int64)
    ours, torchs = _both("take", x, index)
    assert torch.equal(ours, torchs)
    source = torch.ones(index.shape)
    # Equal numbers, since which of two is written to one place is open.
    for accumulate in (False, True):
        ours, torchs = _both("put_", x.t() if x.dim() == 2 else x, index, source, accumulate)
        torch.testing.assert_close(ours, torchs)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=_SEEDS)
def test_index_copy(data: st.DataObject, sizes: list[int], seed: int) -> None:
    x = _drawn(tuple(sizes), seed).mT if len(sizes) > 1 else _drawn(tuple(sizes), seed)
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1))
    index = torch.tensor(
        data.draw(st.permutations(range(x.shape[dim])))[: data.draw(st.integers(0, 3))],
        dtype=torch.int64,
    )
    shape = list(x.shape)
    shape[dim] = index.numel()
    source = _drawn(tuple(shape), seed + 1)
    for operator in ("index_copy", "index_copy_"):
        assert torch.equal(*_both(operator, x, dim, index, source))
    assert torch.equal(*_both("index_copy.out", x, dim, index, source, out=x.new_empty(0)))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dimensions=st.sampled_from([2, 3]), batched=st.booleans(), seed=_SEEDS)
def test_max_unpool(data: st.DataObject, dimensions: int, batched: bool, seed: int) -> None:
    lead = (2, 3) if batched else (3,)
    size = data.draw(st.lists(st.integers(1, 5), min_size=dimensions, max_size=dimensions))
    pooled = tuple(data.draw(st.integers(1, full)) for full in size)
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(prod(size), generator=generator) for _ in range(prod(lead))]
    indices = torch.stack(rows)[:, : prod(pooled)].reshape(*lead, *pooled)
    rest = () if dimensions == 2 else ([1, 1, 1], [0, 0, 0])
    operator = f"max_unpool{dimensions}d"
    x = _drawn((*lead, *pooled), seed)
    assert torch.equal(*_both(operator, x, indices, size, *rest))
    out = {"out": torch.empty(0)}
    assert torch.equal(*_both(f"{operator}.out", x, indices, size, *rest, **out))


_MODES: Final = (st.sampled_from([0, 1]), st.sampled_from([0, 1, 2]), st.booleans())


@settings(max_examples=60, deadline=None)
@given(
    volume=st.tuples(*[st.integers(1, 5)] * 5),
    samples=st.tuples(*[st.integers(0, 3)] * 3),
    modes=st.tuples(*_MODES),
    reach=st.sampled_from([0.5, 1.0, 4.0]),
    seed=_SEEDS,
)
def test_grid_sampler(
    volume: tuple[int, ...],
    samples: tuple[int, ...],
    modes: tuple[int, int, bool],
    reach: float,
    seed: int,
) -> None:
    x, grid = _drawn(volume, seed), _drawn((volume[0], *samples, 3), seed + 1) * reach
    # Halves, where nearest has two; and the outermost centres and edges.
    grid = torch.where(grid.abs() < 0.2, (grid * 10).round() / 2, grid)
    wide, wide_grid = x.double(), grid.double()
    ours, _ = _both("grid_sampler_3d", wide, wide_grid, *modes)
    assert _error(ours, _torchs("grid_sampler_3d")(wide, wide_grid, *modes)) < 1e-12
    cotangent = _drawn(tuple(ours.shape), seed + 2).double()
    for mask in ([True, True], [False, True], [True, False]):
        found, torchs = _both("grid_sampler_3d_backward", cotangent, wide, wide_grid, *modes, mask)
        for one, other, wanted in zip(found, torchs, mask, strict=True):
            assert (one is not None) == wanted
            if wanted:
                assert _error(one, other) < 1e-12
    if ours.numel():
        # Of float32: the places round, and so do up to eight products and their sum.
        error = _error(
            _KERNELS["grid_sampler_3d"](x, grid, 0, *modes[1:]).double(),
            _torchs("grid_sampler_3d")(wide, wide_grid, 0, *modes[1:]),
        )
        assert error < _SUMS * 8 * max(1.0, reach) * max(volume)


def _error(found: Tensor, expected: Tensor) -> float:
    """Return the greatest difference, in units of the greatest value."""
    assert found.shape == expected.shape
    if not found.numel():
        return 0.0
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_grid_sampler_of_half_precision_rounds_once(dtype: torch.dtype) -> None:
    x, grid = _drawn((2, 3, 4, 5, 6), 0, dtype), _drawn((2, 3, 2, 2, 3), 1, dtype)
    ours = _KERNELS["grid_sampler_3d"](x, grid, 0, 0, False)
    wide = functional.grid_sample(x.double(), grid.double(), align_corners=False)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.double(), wide, rtol=torch.finfo(dtype).eps, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(seed=_SEEDS, bad=st.sampled_from([None, torch.inf, torch.nan]), scale=st.floats(0.1, 1e4))
def test_unscaled_gradients(seed: int, bad: float | None, scale: float) -> None:
    results = []
    operator = "_amp_foreach_non_finite_check_and_unscale_"
    for kernel in (_KERNELS[operator], _torchs(operator)):
        gradients = [_drawn((3, 2), seed), _drawn((5,), seed), _drawn((), seed), torch.empty(0)]
        if bad is not None:
            gradients[1][2] = bad
        found = torch.zeros(1)
        kernel(gradients, found, torch.tensor([1 / scale]))
        results.append([*gradients, found])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-6, atol=0)


def test_a_small_factor_keeps_gradients_of_half_precision() -> None:
    gradient, found = torch.tensor([6e4], dtype=torch.float16), torch.zeros(())
    _KERNELS["_amp_foreach_non_finite_check_and_unscale_"](
        [gradient], found, torch.tensor(2.0**-30)
    )
    # 2 ** -30 itself is 0 in float16.
    assert float(gradient) == pytest.approx(6e4 * 2.0**-30, rel=1e-2)


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(1.0, 2.0**127, width=32),
    steps=st.integers(0, 3),
    found=st.sampled_from([0.0, 1.0]),
    interval=st.integers(1, 4),
)
def test_the_next_scale(scale: float, steps: int, found: float, interval: int) -> None:
    results = []
    for kernel in (_KERNELS["_amp_update_scale_"], _torchs("_amp_update_scale_")):
        current, tracker = torch.tensor([scale]), torch.tensor([steps], dtype=torch.int32)
        returned = kernel(current, tracker, torch.tensor([found]), 2.0, 0.5, interval)
        assert returned is current
        results.append((float(current), int(tracker)))
    assert results[0] == results[1]


_X: Final = torch.zeros(3, 4)
_VOLUME: Final = torch.zeros(1, 2, 3, 3, 3)
_GRID: Final = torch.zeros(1, 2, 2, 2, 3)
_IMAGE: Final = torch.zeros(2, 2, 2)
_PLACES: Final = torch.zeros(2, 2, 2, dtype=torch.int64)
_HERE: Final = torch.tensor([0])


@pytest.mark.parametrize(
    ("operator", "arguments", "error", "text"),
    [
        ("mode", (_X[:, :0], 1), IndexError, "mode: dim: expected a dimension with elements, got"),
        ("take", (_X, torch.tensor([12])), IndexError, "take: index: expected -12 to 11, got 12"),
        ("take", (_X, torch.tensor([-13])), IndexError, "got -13"),
        ("put_", (_X, torch.tensor([12]), torch.ones(1)), IndexError, "put_: index: expected"),
        ("put_", (_X, _HERE, torch.ones(2)), RuntimeError, "source: expected 1 elements, got 2"),
        ("index_copy", (_X, 0, torch.tensor([3]), _X[:1]), IndexError, "expected 0 to 2, got 3"),
        ("index_copy_", (_X, 0, torch.tensor([-1]), _X[:1]), IndexError, "got -1"),
        ("index_copy", (_X, 0, _HERE, _X[:2]), RuntimeError, r"source: expected \[1, 4\], got"),
        ("max_unpool2d", (_IMAGE, _PLACES + 9, [3, 3]), IndexError, "expected 0 to 8, got 9"),
        ("max_unpool2d", (_IMAGE, _PLACES[:1], [3, 3]), RuntimeError, r"indices: expected \[2, 2"),
        ("max_unpool2d", (_X, _PLACES, [3, 3]), RuntimeError, "expected 3 or 4 dimensions, got 2"),
        (
            "max_unpool3d",
            (_VOLUME, _VOLUME.long(), [3, 3, 3], [0, 1, 1], [0, 0, 0]),
            RuntimeError,
            "stride: expected 1 or more, got",
        ),
        ("grid_sampler_3d", (_X, _GRID, 0, 0, False), RuntimeError, "expected 5 dimensions, got 2"),
        (
            "grid_sampler_3d",
            (_VOLUME, _GRID[..., :2], 0, 0, False),
            RuntimeError,
            r"grid: expected \[1, d, h, w, 3\], got \[1, 2, 2, 2, 2\]",
        ),
        ("grid_sampler_3d", (_VOLUME, _GRID, 2, 0, False), RuntimeError, "got 'bicubic'"),
        (
            "grid_sampler_3d",
            (_VOLUME[:, :, :0], _GRID, 0, 0, False),
            RuntimeError,
            "input: expected a volume with elements",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    operator: str, arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        _KERNELS[operator](*arguments)


def test_kthvalue_names_what_does_not_fit() -> None:
    out = {"values": torch.empty(0), "indices": torch.empty(0, dtype=torch.int64)}
    for k in (0, 5):
        with pytest.raises(RuntimeError, match=f"kthvalue: k: expected 1 to 4, .* got {k}"):
            _KERNELS["kthvalue.values"](_X, k, **out)
    out["values"] = out["values"].double()
    with pytest.raises(RuntimeError, match=r"out: expected torch.float32, got torch.float64"):
        _KERNELS["kthvalue.values"](_X, 1, **out)


def test_every_operator_is_one_of_torch_and_in_one_replacement() -> None:
    operators = [operator for one in REPLACEMENTS for operator in one.operators]
    assert len(operators) == len(set(operators)) == 33
    assert all(_torchs(operator) for operator in operators)


def test_a_kernel_on_the_cpu_says_what_it_copied() -> None:
    copied: list[int] = []
    x = _drawn((4, 3), 0)
    for operator, named in (
        ("_linalg_svd", {}),
        ("_linalg_svd.U", {name: torch.empty(0) for name in ("U", "S", "Vh")}),
    ):
        found = kernel_on_cpu(operator, copied.append)(x, False, **named)
        for one, other in zip(found, torch.linalg.svd(x, full_matrices=False), strict=True):
            torch.testing.assert_close(one, other)
        assert all(one is found[at] for at, one in enumerate(named.values()))
    assert copied == [4 * (12 + 12 + 3 + 9)] * 2


@pytest.mark.parametrize("replacement", REPLACEMENTS, ids=lambda one: one.program)
def test_kernels_are_torchs_for_as_long_as_their_library_lives(replacement: Replacement) -> None:
    def kernel(name: str) -> str:
        """Return where torch's kernel of an operator was registered; nothing without one."""
        try:
            return repr(torch.library.get_kernel(f"aten::{name}", "XPU"))
        except RuntimeError:
            return ""

    # A device that torch knows, and of which this build has no kernels but those for any device.
    before = [kernel(name) for name in replacement.operators]
    libraries = [kernels_registered(replacement, torch.device("xpu"), "there is none")]
    for name, one in zip(replacement.operators, before, strict=True):
        assert kernel(name) not in ("", one)
    libraries.clear()
    assert [kernel(name) for name in replacement.operators] == before
