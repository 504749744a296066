"""What is drawn, and the distribution in float64 that it should have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from torchyard_mps import distributions as drawn
from torchyard_mps.distributions import _draws as draws

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A distribution with parameters.

    Attributes:
        name: for reports.
        made: ours.
        exact: scipy's, of what ``seen`` gives.
        seen: from a draw to numbers of one dimension.
        discrete: whether its values are counts.
        moments: whether it has a mean and a variance, and neither is beyond floats.
    """

    name: str
    made: Callable[[], Any]
    exact: Any
    seen: Callable[[Tensor], Tensor] = lambda x: x
    discrete: bool = False
    moments: bool = True


def _log(x: Tensor) -> Tensor:
    return x.double().log()


def _gamma(shape: float, rate: float = 1.0) -> Case:
    return Case(
        f"Gamma({shape:g}, {rate:g})",
        lambda: drawn.Gamma(torch.tensor(shape), torch.tensor(rate)),
        stats.gamma(np.float32(shape).item(), scale=1 / rate),
    )


class _LogGamma:
    """Logarithms of gamma variables, which floats hold where they do not hold the variables."""

    def __init__(self, shape: float) -> None:
        self._shape = shape

    def sample(self, sample_shape: tuple[int, ...]) -> Tensor:
        shape = torch.full(sample_shape, self._shape)
        return draws.gamma(shape, draws.key_of(None, shape.device))[1]


def _log_gamma(shape: float) -> Case:
    exact = stats.loggamma(np.float32(shape).item())
    return Case(f"log Gamma({shape:g})", lambda: _LogGamma(shape), exact)


def _beta(a: float, b: float) -> Case:
    return Case(f"Beta({a:g}, {b:g})", lambda: drawn.Beta(a, b), stats.beta(a, b))


def _dirichlet(at: int, *shape: float) -> Case:
    return Case(
        f"Dirichlet{shape}[{at}]",
        lambda: drawn.Dirichlet(torch.tensor(shape)),
        stats.beta(shape[at], sum(shape) - shape[at]),
        lambda x: x[..., at],
    )


def _count(name: str, made: Callable[[], Any], exact: Any) -> Case:
    return Case(name, made, exact, discrete=True)


def _poisson(rate: float) -> Case:
    exact = stats.poisson(np.float32(rate).item())
    return _count(f"Poisson({rate:g})", lambda: drawn.Poisson(torch.tensor(rate)), exact)


def _binomial(n: int, p: float) -> Case:
    exact = stats.binom(n, np.float32(p).item())
    made = lambda: drawn.Binomial(torch.tensor(float(n)), torch.tensor(p))  # noqa: E731
    return _count(f"Binomial({n}, {p:g})", made, exact)


def _geometric(p: float) -> Case:
    exact = stats.geom(np.float32(p).item(), loc=-1)
    return _count(f"Geometric({p:g})", lambda: drawn.Geometric(torch.tensor(p)), exact)


def _negative_binomial(n: float, p: float) -> Case:
    # scipy's p is that of the event that ends the count.
    exact = stats.nbinom(n, 1 - np.float32(p).item())
    made = lambda: drawn.NegativeBinomial(torch.tensor(n), torch.tensor(p))  # noqa: E731
    return _count(f"NegativeBinomial({n:g}, {p:g})", made, exact)


def _von_mises(concentration: float, loc: float = 0.0) -> Case:
    def turned(x: Tensor) -> Tensor:
        return (x - loc + torch.pi) % (2 * torch.pi) - torch.pi

    made = lambda: drawn.VonMises(torch.tensor(loc), torch.tensor(concentration))  # noqa: E731
    return Case(
        f"VonMises({loc:g}, {concentration:g})", made, stats.vonmises(concentration), turned
    )


def _categorical(*weights: float) -> Case:
    total = sum(weights)
    exact = stats.rv_discrete(values=(range(len(weights)), [one / total for one in weights]))
    made = lambda: drawn.Categorical(torch.tensor(weights))  # noqa: E731
    return _count(f"Categorical of {len(weights)}", made, exact)


def _student(df: float) -> Case:
    return Case(
        f"StudentT({df:g})",
        lambda: drawn.StudentT(torch.tensor(df)),
        stats.t(df),
        moments=df > 4,
    )


CASES: Final = (
    Case("Normal(1, 2)", lambda: drawn.Normal(1.0, 2.0), stats.norm(1, 2)),
    Case("LogNormal(0.5, 0.7)", lambda: drawn.LogNormal(0.5, 0.7), stats.norm(0.5, 0.7), _log),
    Case("Exponential(3)", lambda: drawn.Exponential(3.0), stats.expon(scale=1 / 3)),
    *(_gamma(shape) for shape in (0.1, 0.5, 0.999, 1.0, 2.5, 30.0, 1e3)),
    _gamma(3.0, 5.0),
    *(_log_gamma(shape) for shape in (1e-4, 0.01, 0.3, 2.0)),
    Case("Chi2(5)", lambda: drawn.Chi2(torch.tensor(5.0)), stats.chi2(5)),
    *(_beta(a, b) for a, b in ((0.5, 0.5), (1.0, 1.0), (2.0, 5.0), (80.0, 3.0), (0.2, 1.5))),
    _dirichlet(0, 0.3, 1.0, 4.0),
    _dirichlet(2, 0.3, 1.0, 4.0),
    _dirichlet(1, 50.0, 20.0, 30.0, 7.0),
    *(_student(df) for df in (0.7, 3.0, 30.0)),
    *(_poisson(rate) for rate in (0.1, 3.0, 9.99, 10.0, 37.5, 1e3, 1e5)),
    *(_binomial(n, p) for n, p in ((1, 0.3), (20, 0.01), (40, 0.25), (40, 0.9), (1000, 0.5))),
    _binomial(1_000_000, 0.3),
    *(_geometric(p) for p in (0.003, 0.3, 0.95)),
    *(_negative_binomial(n, p) for n, p in ((0.5, 0.9), (3.0, 0.4), (60.0, 0.7))),
    *(_von_mises(kappa) for kappa in (0.01, 1.0, 4.0, 50.0, 1e4)),
    _von_mises(2.0, 3.0),
    _categorical(0.1, 0.2, 0.3, 0.4),
    _categorical(*(1.0 / (k + 1) for k in range(100))),
)
