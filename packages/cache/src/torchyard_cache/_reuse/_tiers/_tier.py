"""``Tier``: a place for entries below memory."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Tier"]


class Tier(Protocol):
    """A place for entries below memory. Neither method raises for what the place does."""

    name: str
    errors: int

    def get(self, key: str) -> bytes | None:
        """Return what was put; None where there is nothing, or no answer in time."""

    def put(self, key: str, data: bytes) -> None:
        """Keep data, or do not."""

    def delete(self, key: str) -> None:
        """Forget data."""
