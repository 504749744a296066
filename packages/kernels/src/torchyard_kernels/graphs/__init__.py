"""Execution graphs: capture once, replay without Python between the operators."""

from __future__ import annotations

__all__: list[str] = []
