"""Tiles measured on the device at hand: ``python -m torchyard_triton.autotune --device cuda``."""

from __future__ import annotations

from torchyard_triton.autotune._search import Finding, measure

__all__ = ["Finding", "measure"]
