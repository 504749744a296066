"""A tier is asked while it saves more time than it takes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from packages.cache.tests.reuse.models import llama, prompt
from torchyard_cache import reuse
from torchyard_cache._reuse._tiers import LimitedTier


class _Clock:
    """Seconds that pass where they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class _Slow:
    """A tier that takes its time, and has what it was given."""

    name = "far"
    errors = 0

    def __init__(self, wait: Callable[[], object]) -> None:
        self.wait = wait
        self.held: dict[str, bytes] = {}
        self.asked = 0

    def _take(self) -> None:
        self.asked += 1
        self.wait()

    def get(self, key: str) -> bytes | None:
        self._take()
        return self.held.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._take()
        self.held[key] = data

    def delete(self, key: str) -> None:
        self.held.pop(key, None)


def _pair(seconds: float) -> tuple[_Clock, _Slow, LimitedTier]:
    clock = _Clock()

    def wait() -> None:
        clock.now += seconds

    tier = _Slow(wait)
    return clock, tier, LimitedTier(tier, clock)


def _ask(limited: LimitedTier, key: str, worth: float, times: int) -> None:
    for _ in range(times):
        limited.get(key, worth)


def _generate(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model.generate(tokens, max_new_tokens=2, do_sample=False)
    return found


def test_a_tier_that_is_faster_than_computing_is_always_asked() -> None:
    _, tier, limited = _pair(0.02)
    limited.put("a", b"x", 0.03)
    for _ in range(1000):
        assert limited.get("a", 0.03) == b"x"
    assert (tier.asked, limited.errors) == (1001, 0)


def test_a_tier_that_takes_longer_is_left_alone_and_asked_again_later() -> None:
    clock, tier, limited = _pair(0.1)
    tier.held["a"] = b"x"
    with pytest.warns(UserWarning, match=r"tier far: it took 0\.\d s longer .* alone for 30 s"):
        _ask(limited, "a", 0.03, times=10)
    # 0.07 s of each are too much, and 5 % of the time are free.
    asked = tier.asked
    assert 7 <= asked < 10
    begun = clock.now
    assert limited.get("a", 0.03) is None
    limited.put("b", b"y", 0.03)
    assert (tier.asked, clock.now, limited.errors) == (asked, begun, 1)
    limited.delete("a")
    assert not tier.held
    clock.now += 30
    limited.put("b", b"y", 0.03)
    assert tier.held == {"b": b"y"}


def test_entries_that_a_tier_does_not_have_may_take_a_twentieth_of_the_time() -> None:
    clock, tier, limited = _pair(0.004)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2000):
            limited.get("absent", 1.0)
            clock.now += 0.1
    assert tier.asked == 2000
    with pytest.warns(UserWarning, match="left alone"):
        _ask(limited, "absent", 1.0, times=200)


def test_a_slow_tier_costs_a_model_a_bounded_time() -> None:
    model, tokens = llama(), prompt(200)
    expected = _generate(model, tokens)
    tier = _Slow(lambda: time.sleep(0.1))
    with reuse(model, page=4, tiers=[tier]) as cache:
        # Putting 49 pages would take 5 s.
        begun = time.monotonic()
        with pytest.warns(UserWarning, match="left alone"):
            found = [_generate(model, tokens) for _ in range(3)]
        assert all(torch.equal(one, expected) for one in found)
        assert time.monotonic() - begun < 4
        assert cache.stats().tier_errors == {"far": 1}
