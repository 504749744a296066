"""One implementation, as the case of a law."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchyard_conformance._outcome import unverified

__all__ = ["Trial"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One implementation before one law, on one call.

    Attributes:
        judge: returns the law's figures, and raises where it does not hold; None where nothing can
            be tried.
        absence: why nothing can be tried; empty where it can.
    """

    judge: Callable[[], Mapping[str, float | str]] | None
    absence: str

    def hold(self, record: Callable[[str, float | str], None]) -> None:
        """Hold the implementation to the law.

        Args:
            record: told of each figure.

        Raises:
            Violated, NotSupported, Unverified: how it ends where it does not simply hold.
        """
        if self.judge is None or self.absence:
            unverified(self.absence)
        from torchyard_conformance._trials._threads import threads

        # The reference's tensors are small; threads are the implementation's.
        with threads(1):
            figures = self.judge()
        for name, value in figures.items():
            record(name, value)
