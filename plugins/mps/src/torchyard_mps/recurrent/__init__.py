"""Recurrent layers in Metal."""

from __future__ import annotations

from torchyard_mps.recurrent._backward import backward
from torchyard_mps.recurrent._forward import forward

__all__ = ["backward", "forward"]
