"""What is drawn has its distribution: moments, and the tests of Kolmogorov and Pearson."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.mps.tests.distributions.references import CASES, Case
from plugins.mps.tests.distributions.statistics import draw, moment_distances, probability

# Seeds are fixed, so a right sampler fails never or always: once in 20 000 choices of all seeds.
_LEAST = 1e-6
_IDS = [case.name for case in CASES]
# Numbers that are drawn again until they are taken, which the emulator takes seconds for.
_SLOW = "VonMises"
_QUICK = [case for case in CASES if not case.name.startswith(_SLOW)]


def _check(case: Case, count: int) -> None:
    values = draw(case, count)
    assert np.isfinite(values).all()
    if case.moments:
        assert max(moment_distances(case, values)) < 6
    assert probability(case, values) > _LEAST


@pytest.mark.parametrize("case", _QUICK, ids=[case.name for case in _QUICK])
def test_what_is_drawn_has_its_distribution(case: Case) -> None:
    _check(case, 30_000)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=_IDS)
def test_a_million_draws_have_their_distribution(case: Case) -> None:
    _check(case, 1_000_000)


@pytest.mark.parametrize(
    "name",
    ["Gamma(2.5, 1)", "Poisson(37.5)", pytest.param("VonMises(0, 4)", marks=pytest.mark.sweep)],
)
def test_a_distribution_that_is_a_little_off_is_found(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    values = draw(case, 30_000)
    off = values * 1.1 if not case.discrete else values + (np.arange(len(values)) % 2 == 0)
    assert probability(case, off) < _LEAST
