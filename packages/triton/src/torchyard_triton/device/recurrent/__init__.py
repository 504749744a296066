"""Kernels of recurrent layers: a step, and the gradients of a step."""

from __future__ import annotations

__all__: list[str] = []
