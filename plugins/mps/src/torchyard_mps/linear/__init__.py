"""Products with a weight in Metal."""

from __future__ import annotations

from torchyard_mps.linear._product import multiply, product

__all__ = ["multiply", "product"]
