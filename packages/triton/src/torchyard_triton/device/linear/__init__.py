"""Kernels of linear: the product, and the sum of its parts."""

from __future__ import annotations

__all__: list[str] = []
