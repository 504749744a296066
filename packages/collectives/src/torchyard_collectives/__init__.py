"""Collectives that differentiate, run at memory speed and explain themselves when stuck."""

from __future__ import annotations

__all__: list[str] = []
