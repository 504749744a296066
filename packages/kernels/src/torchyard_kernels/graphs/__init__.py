"""Execution graphs: a function is captured once and replayed without Python between operators."""

from __future__ import annotations

__all__: list[str] = []
