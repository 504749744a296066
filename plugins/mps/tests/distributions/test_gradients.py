"""Gradients of draws: of one draw at its quantile, and of expectations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from plugins.mps.tests.emulated import emulated
from torchyard_mps import distributions as drawn
from torchyard_mps.distributions import _draws as draws

_SHAPES = (1e-3, 0.05, 0.5, 0.999, 1.0, 1.5, 4.0, 30.0, 99.0, 101.0, 150.0, 1e3, 1e5)
_QUANTILES = (1e-4, 0.01, 0.2, 0.5, 0.6, 0.9, 0.999)


def _slope(shape: float, value: float) -> float:
    """Return d log(value) / d shape at a quantile, by central differences of float64's inverse."""
    lower = value <= shape
    of = special.gammainc if lower else special.gammaincc
    inverse = special.gammaincinv if lower else special.gammainccinv
    level, step = of(shape, value), shape * 3e-5
    # Two steps, whose errors of the third order cancel.
    wide, narrow = (
        (np.log(inverse(shape + h, level)) - np.log(inverse(shape - h, level))) / (2 * h)
        for h in (2 * step, step)
    )
    return float((4 * narrow - wide) / 3)


def test_slopes_of_gamma_variables_are_those_at_their_quantiles() -> None:
    pairs = [(s, float(stats.gamma.ppf(q, s))) for s in _SHAPES for q in _QUANTILES]
    pairs = [(s, x) for s, x in pairs if x > 1e-30]
    shape, value = (torch.tensor(part) for part in zip(*pairs, strict=True))
    with emulated():
        found = draws.gamma_slopes(shape, value, value.log())
    wanted = torch.tensor(
        [_slope(float(s), float(x)) for s, x in zip(shape, value, strict=True)], dtype=torch.float64
    )
    assert len(pairs) > 80
    assert ((found.double() / wanted) - 1).abs().max() < 2e-5


def test_where_a_value_underflows_its_logarithm_gives_the_slope() -> None:
    # x = (u gamma(shape + 1))^(1 / shape) there.
    shape, level = torch.tensor([1e-3, 0.01]), torch.tensor([0.2, 0.05]).double()
    wide = shape.double()
    log_value = (level.log() + torch.lgamma(wide + 1)) / wide
    with emulated():
        found = draws.gamma_slopes(shape, log_value.exp().float(), log_value.float())
    wanted = (torch.digamma(wide + 1) - log_value) / wide
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=0)


def _location_scale(name: str) -> tuple[Callable[[Tensor, Tensor], Any], Callable[..., Any]]:
    return getattr(drawn, name), getattr(torch.distributions, name)


@pytest.mark.parametrize("name", ["Normal", "LogNormal"])
def test_gradients_of_located_variables_are_exact(name: str) -> None:
    ours, _ = _location_scale(name)
    loc, scale = torch.tensor(0.3, requires_grad=True), torch.tensor(0.8, requires_grad=True)
    torch.manual_seed(2)
    with emulated():
        x = ours(loc, scale).rsample((50,))
    by_loc, by_scale = torch.autograd.grad(x.sum(), (loc, scale))
    inner = x.detach().log() if name == "LogNormal" else x.detach()
    outer = x.detach() if name == "LogNormal" else torch.ones(50)
    torch.testing.assert_close(by_loc, outer.sum())
    torch.testing.assert_close(by_scale, (outer * (inner - 0.3) / 0.8).sum(), rtol=1e-4, atol=1e-4)


def test_the_gradient_of_an_exponential_variable_is_exact() -> None:
    rate = torch.tensor(2.5, requires_grad=True)
    with emulated():
        x = drawn.Exponential(rate).rsample((50,))
    (found,) = torch.autograd.grad(x.sum(), rate)
    torch.testing.assert_close(found, -(x.detach() / 2.5).sum())


@pytest.mark.parametrize("shape", [0.2, 1.0, 3.0, 40.0])
def test_gradients_of_gamma_are_those_of_torch_on_the_cpu(shape: float) -> None:
    count = 400
    concentration = torch.full((count,), shape, requires_grad=True)
    rate = torch.tensor(1.7, requires_grad=True)
    torch.manual_seed(4)
    with emulated():
        x = drawn.Gamma(concentration, rate).rsample()
        by_shape, by_rate = torch.autograd.grad(x.sum(), (concentration, rate))
    wide = x.detach().double()
    of_torch = torch._standard_gamma_grad(concentration.detach().double(), wide * 1.7) / 1.7
    # torch's own approximation is right to 0.2 % or so here.
    torch.testing.assert_close(by_shape.double(), of_torch, rtol=5e-3, atol=1e-6)
    torch.testing.assert_close(by_rate, -(x.detach() / 1.7).sum())


# name -> (a distribution of one parameter, its value, a function, its expectation's derivative).
_EXPECTED: dict[str, tuple[Callable[[Tensor], Any], float, Callable[[Tensor], Tensor], float]] = {
    "Gamma, mean": (lambda a: drawn.Gamma(a, torch.tensor(2.0)), 1.5, lambda x: x, 0.5),
    "Gamma, square": (lambda a: drawn.Gamma(a, torch.tensor(1.0)), 0.7, lambda x: x * x, 2.4),
    "Chi2, mean": (drawn.Chi2, 3.0, lambda x: x, 1.0),
    "Beta, mean": (
        lambda a: drawn.Beta(a, torch.tensor(2.0)),
        1.5,
        lambda x: x,
        2.0 / 3.5**2,
    ),
    "Beta, small": (
        lambda a: drawn.Beta(a, torch.tensor(0.3)),
        0.2,
        lambda x: x,
        0.3 / 0.5**2,
    ),
    "Dirichlet, mean": (
        lambda a: drawn.Dirichlet(torch.stack([a, torch.tensor(1.0), torch.tensor(2.5)])),
        0.8,
        lambda x: x[..., 0],
        3.5 / 4.3**2,
    ),
    "StudentT, square": (
        drawn.StudentT,
        9.0,
        lambda x: x * x,
        -2.0 / 7.0**2,
    ),
}


@pytest.mark.parametrize("name", _EXPECTED)
def test_gradients_of_expectations(name: str) -> None:
    made, at, function, wanted = _EXPECTED[name]
    count, parameter = 20_000, torch.tensor(at, requires_grad=True)
    torch.manual_seed(6)
    with emulated():
        terms = function(made(parameter).rsample((count,)))
        (found,) = torch.autograd.grad(terms.mean(), parameter)
    assert abs(float(found) - wanted) < 0.08 * abs(wanted) + 0.01


def test_gradients_of_a_dirichlet_sum_to_nothing_along_its_sum() -> None:
    concentration = torch.tensor([0.3, 2.0, 5.0], requires_grad=True)
    with emulated():
        x = drawn.Dirichlet(concentration).rsample((7,))
        (found,) = torch.autograd.grad(x.sum(), concentration)
    assert found.abs().max() < 1e-5


def test_sample_records_no_gradient() -> None:
    concentration = torch.tensor(1.0, requires_grad=True)
    with emulated():
        assert not drawn.Gamma(concentration, torch.tensor(1.0)).sample((3,)).requires_grad
        assert drawn.Gamma(concentration, torch.tensor(1.0)).rsample((3,)).requires_grad
