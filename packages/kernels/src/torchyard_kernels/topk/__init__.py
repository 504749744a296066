"""The first k of each row."""

from __future__ import annotations

__all__: list[str] = []
