"""Calls that are not yet refused, or taken, as they should be; each must leave when it is."""

from __future__ import annotations

from typing import Final

__all__ = ["OPEN"]

# Names of calls, as the catalogue has them; none is open.
OPEN: Final[frozenset[str]] = frozenset()
