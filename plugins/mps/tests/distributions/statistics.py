"""How far draws are from their distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import stats

from plugins.mps.tests.distributions.references import Case
from plugins.mps.tests.emulated import emulated

__all__ = ["draw", "moment_distances", "probability"]


def draw(case: Case, count: int) -> Any:
    torch.manual_seed(len(case.name) + count)
    with emulated():
        return case.seen(case.made().sample((count,))).double().numpy()


def moment_distances(case: Case, values: Any) -> list[float]:
    """Return how far mean and variance are from the exact ones, in standard errors."""
    mean, variance, excess = (float(part) for part in case.exact.stats(moments="mvk"))
    error = math.sqrt(variance / len(values))
    of_variance = variance * math.sqrt((excess + 2) / len(values))
    return [abs(values.mean() - mean) / error, abs(values.var() - variance) / of_variance]


def probability(case: Case, values: Any) -> float:
    """Return how likely a right sampler is to be as far off."""
    if not case.discrete:
        return float(stats.kstest(values, case.exact.cdf).pvalue)
    # Classes of 10 expected values or more.
    edges = np.unique(case.exact.ppf(np.linspace(0, 1, min(200, len(values) // 50) + 1)[1:-1]))
    below = np.concatenate([[0.0], case.exact.cdf(edges), [1.0]])
    expected = np.diff(below) * len(values)
    inner = np.concatenate([[-np.inf], edges, [np.inf]])
    seen = np.histogram(values, np.nextafter(inner, np.inf))[0].astype(float)
    while len(expected) > 1 and expected.min() < 10:
        at = int(expected.argmin())
        other = at - 1 if at else 1
        low, high = min(at, other), max(at, other)
        for counts in (expected, seen):
            counts[low] += counts[high]
        expected, seen = np.delete(expected, high), np.delete(seen, high)
    if len(expected) == 1:
        return 1.0
    return float(stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue)
