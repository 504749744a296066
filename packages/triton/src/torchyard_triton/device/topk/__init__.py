"""Kernels of topk: the order as whole numbers, the selection, the sort of what was selected."""

from __future__ import annotations

__all__: list[str] = []
