"""What a rank computes between exchanges, so that an error in it does not stop the exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["Attempt"]

T = TypeVar("T")


class Attempt:
    """Runs a rank's own computations until one raises.

    A score_mod or a mask_mod may raise for the positions of one rank alone. The others then wait
    for what that rank has to send, so it goes on sending, and the ranks compare errors at the end.

    Attributes:
        error: what was raised; None: nothing.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None

    def run(self, function: Callable[[], T]) -> T | None:
        """Return what a function returns; None where it, or one before it, raised."""
        if self.error is not None:
            return None
        try:
            return function()
        except Exception as error:
            self.error = error
            return None
