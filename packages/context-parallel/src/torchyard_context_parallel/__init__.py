"""Attention over a sequence that is spread over many ranks."""

from __future__ import annotations

__all__: list[str] = []
