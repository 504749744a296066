"""Indices that are checked on the device, and what came of it."""

from __future__ import annotations

from torchyard_mps._checks._faults import IndexRangeError, errors, synchronize
from torchyard_mps._checks._mode import checked

__all__ = ["IndexRangeError", "checked", "errors", "synchronize"]
