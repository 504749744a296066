"""The first k of rows in Metal."""

from __future__ import annotations

from torchyard_mps.topk._selection import select

__all__ = ["select"]
