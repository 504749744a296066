"""What all of the kit's tests share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _what_is_imported_is_not_collected() -> None:
    """Keep what a module's tests have imported out of the collections that laws on memory make."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def three_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the law on cost be sure after three tries: what waits by the clock waits in each."""
    monkeypatch.setattr("torchyard_conformance._trials._resources._TRIES", 3)
