"""A direct forward that only notes, in the place of those that the chosen forwards offer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchyard import registry
from torchyard_attention._ops import _decided as decided
from torchyard_attention.contract import AttentionCall, AttentionRequest

__all__ = ["Spy", "nothing_decided", "spying"]


class Spy:
    """A direct forward that tells what it was asked, and serves everything or nothing.

    Attributes:
        answer: to every call; None: none is served.
        asked: the arguments of each call.
        admitted: what it was told.
    """

    def __init__(self) -> None:
        self.answer: Any = None
        self.asked: list[tuple[Any, ...]] = []
        self.admitted: list[tuple[AttentionRequest, AttentionCall]] = []

    def serve(self, *arguments: Any) -> Any:
        """Note a call."""
        self.asked.append(arguments)
        return self.answer

    def admit(self, request: AttentionRequest, call: AttentionCall) -> None:
        """Note a decision."""
        self.admitted.append((request, call))


@contextmanager
def nothing_decided() -> Iterator[dict[str, Any]]:
    """Put aside what was decided; yield where it is kept."""
    kept = registry().conclusions()
    before = kept.pop(decided._KEY, None)
    try:
        yield kept
    finally:
        kept.pop(decided._KEY, None)
        if before is not None:
            kept[decided._KEY] = before


@contextmanager
def spying() -> Iterator[Spy]:
    """Let a spy alone be asked."""
    with nothing_decided() as kept:
        spy = Spy()
        direct = kept[decided._KEY] = decided._Direct()
        direct.serve = (spy.serve,)
        yield spy
