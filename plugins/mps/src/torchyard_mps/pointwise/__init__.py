"""Pointwise functions over lists of tensors in Metal."""

from __future__ import annotations

from torchyard_mps.pointwise._map import compute, map_launches

__all__ = ["compute", "map_launches"]
