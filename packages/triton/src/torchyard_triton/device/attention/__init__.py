"""Kernels of attention: one file for each pass."""

from __future__ import annotations

__all__: list[str] = []
