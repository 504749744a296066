"""Optimizations that a test offers in place of the installed plugins'."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.optimize.toys import plugin
from torchyard.optimization import Optimization
from torchyard.optimization._measurement import Bench

Offering = Callable[..., None]


@pytest.fixture
def offering(monkeypatch: pytest.MonkeyPatch) -> Offering:
    """Return a function that has optimizations offered, and no others.

    A call of a ``Delayed`` then takes what that says, and not what a busy machine makes of it.
    """
    monkeypatch.setattr(Bench, "seconds", lambda bench, *_, **__: bench._model.delay)

    def offer(*optimizations: Optimization, version: str = "1.0") -> None:
        owner = plugin(version=version)
        found = [(owner, optimization) for optimization in optimizations]
        monkeypatch.setattr("torchyard.optimization._api._offered", lambda: (found, []))

    return offer
