"""Recurrent layers: what users call, the ops, and the implementations in torch."""

from __future__ import annotations

__all__: list[str] = []
