"""A path that only notes, in the place of those that the chosen forwards offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torchyard.dispatch import FastPath, decision_cache
from torchyard_attention._ops._computation import FAST_PATH
from torchyard_attention.contract import AttentionCall, AttentionRequest

__all__ = ["Spy", "nothing_enabled", "spying"]


class Spy:
    """A forward's path that notes what it is given, and computes every call or none.

    Attributes:
        answer: to every call; None: it computes none.
        asked: the arguments of each call.
        enabled: what was enabled.
    """

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[tuple[Any, ...]] = []
        self.enabled: list[tuple[AttentionRequest, AttentionCall]] = []

    def fast_path(self, request: object) -> Spy:
        """Offer itself."""
        return self

    def try_call(self, *arguments: Any) -> Any:
        """Note a call."""
        self.asked.append(arguments)
        return self.answer

    def enable(self, request: AttentionRequest, call: AttentionCall) -> bool:
        """Note a decision."""
        self.enabled.append((request, call))
        return True

    def clear(self) -> None:
        """Forget what was enabled."""
        self.enabled.clear()


@contextmanager
def nothing_enabled() -> Iterator[dict[Any, Any]]:
    """Put aside what was enabled; yield the cache that it was in."""
    cache = decision_cache()
    before = cache.pop(FAST_PATH._paths_key, None)
    try:
        yield cache
    finally:
        cache.pop(FAST_PATH._paths_key, None)
        if before is not None:
            cache[FAST_PATH._paths_key] = before


@contextmanager
def spying() -> Iterator[Spy]:
    """Let a spy alone be asked."""
    with nothing_enabled() as cache:
        spy = Spy()
        FAST_PATH.enable(cache, spy, None, None)
        spy.enabled.clear()
        # The forwards that calls are decided in favour of offer paths too.
        with patch.object(FastPath, "enable"):
            yield spy
