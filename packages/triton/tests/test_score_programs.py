"""Programs of scores and masks, and their derivatives, are in Triton as they are in float64."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from packages.attention.tests.score_programs import LENGTH, MASKS, SCORES, random_score
from torchyard_attention.contract import ScoreMod
from torchyard_attention.testing import traced_score_mod
from torchyard_triton.attention._launch import lowered_mask, lowered_score
from torchyard_triton.lowering import captured_values

_EPS = torch.finfo(torch.float32).eps
_BATCH, _HEAD = 1, 2


@triton.jit
def _tile(scores, out, captured, b, h, FUNCTION: tl.constexpr, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    raw = tl.load(scores + rows * SIZE + columns)
    b, h = tl.full((), b, tl.int32), tl.full((), h, tl.int32)
    value = FUNCTION(raw, b, h, rows, columns, captured)
    tl.store(out + rows * SIZE + columns, tl.where(raw == raw, value, value))


def _computed(mod: ScoreMod, raw: Tensor, dtype: torch.dtype) -> Tensor:
    program = lowered_mask(mod) if dtype == torch.bool else lowered_score(mod)
    out = torch.empty(raw.shape, dtype=dtype)
    captured = captured_values(program, mod.captured)
    _tile[(1,)](raw, out, captured, _BATCH, _HEAD, FUNCTION=program.function(), SIZE=LENGTH)
    return out


def _exact(mod: ScoreMod, raw: Tensor) -> Tensor:
    at = torch.arange(LENGTH)
    b, h = torch.tensor([_BATCH]), torch.tensor([_HEAD])
    return mod.apply(raw.double()[None, None], b, h, at, at)[0, 0]


def _raw() -> Tensor:
    return torch.randn((LENGTH, LENGTH), generator=torch.Generator().manual_seed(5))


def _check(mod: ScoreMod, tolerance: float) -> None:
    got, exact = _computed(mod, _raw(), torch.float32).double(), _exact(mod, _raw())
    infinite = exact.isinf()
    assert torch.equal(got[infinite], exact[infinite])
    scale = exact[~infinite].abs().clamp_min(1.0)
    worst = ((got - exact)[~infinite].abs() / scale).max().item()
    assert worst <= tolerance * _EPS, f"{worst / _EPS:.1f} roundings"


def _slopes(mod: ScoreMod, raw: Tensor) -> Tensor:
    """Return the derivatives by the scores that kernels compute."""
    program = lowered_score(mod, derivatives=True)
    out = torch.empty_like(raw)
    captured = captured_values(program, mod.captured)
    function = program.function(program.slope)
    _tile[(1,)](raw, out, captured, _BATCH, _HEAD, FUNCTION=function, SIZE=LENGTH)
    return out


def _autograd(mod: ScoreMod, raw: Tensor) -> Tensor:
    """Return the derivatives that autograd finds, in the scores' dtype."""
    at = torch.arange(LENGTH)
    b, h = torch.tensor([_BATCH]), torch.tensor([_HEAD])
    given = raw.clone().requires_grad_()
    value = mod.apply(given[None, None], b, h, at, at)
    (slopes,) = torch.autograd.grad(value.sum(), given)
    return slopes


def test_there_are_forty_named_programs() -> None:
    assert len(MASKS) + len(SCORES) == 40


@pytest.mark.parametrize("name", MASKS)
def test_mask(name: str) -> None:
    function = MASKS[name]
    mod = traced_score_mod(lambda s, b, h, q, k: function(b, h, q, k))
    got = _computed(mod, _raw(), torch.bool)
    assert torch.equal(got, _exact(mod, _raw()) != 0)
    assert got.any()


@pytest.mark.parametrize("name", SCORES)
def test_score(name: str) -> None:
    _check(traced_score_mod(SCORES[name]), 16.0)


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_random_scores(first: int) -> None:
    for seed in range(first, first + 25):
        # Values of a chain of such functions are of the size of 1, and so are their slopes.
        _check(traced_score_mod(random_score(seed)), 64.0)


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_slopes_of_random_scores(first: int) -> None:
    for seed in range(first, first + 25):
        mod = traced_score_mod(random_score(seed))
        raw = _raw()
        exact = _autograd(mod, raw.double())
        scale = exact.abs().clamp_min(1.0)
        error, naive = (
            ((found.double() - exact).abs() / scale).max().item()
            for found in (_slopes(mod, raw), _autograd(mod, raw))
        )
        # Each function's own rounding may be a few times that of torch's.
        assert error <= 4.0 * (naive + _EPS), f"{seed}: {error / _EPS:.1f} roundings"


def test_equal_structure_is_one_source() -> None:
    programs = []
    for table in (torch.randn(3, 5), torch.randn(7, 11)):
        mod = traced_score_mod(lambda s, b, h, q, k, table=table: s + table[h, q])
        programs.append(lowered_score(mod))
    assert programs[0].key == programs[1].key
    assert programs[0].function() is programs[1].function()


def test_an_element_that_a_tensor_lacks_is_nan() -> None:
    short = torch.zeros(LENGTH // 2)
    mod = traced_score_mod(lambda s, b, h, q, k: s + short[k])
    got = _computed(mod, _raw(), torch.float32)
    assert got[:, : LENGTH // 2].isfinite().all()
    assert got[:, LENGTH // 2 :].isnan().all()
