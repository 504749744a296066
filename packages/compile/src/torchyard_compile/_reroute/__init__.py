"""torch's functions in an unmodified model, by what the registry chooses; see docs/reroute.md."""

from __future__ import annotations

from torchyard_compile._reroute._mode import Reroute, reroute
from torchyard_compile._reroute._verification import RerouteMismatchError

__all__ = ["Reroute", "RerouteMismatchError", "reroute"]
