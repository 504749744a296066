"""Products of a compiled graph, with what is before and after them, by the registry's choice."""

from __future__ import annotations

from torchyard_compile._fusion._backend import LinearFusion

__all__ = ["LinearFusion"]
