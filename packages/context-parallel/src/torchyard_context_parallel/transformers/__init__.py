"""Models of transformers under context parallelism: their masks are the whole sequence's."""

from __future__ import annotations

from torchyard_context_parallel.transformers._interface import is_taken_over, taken_over

__all__ = ["is_taken_over", "taken_over"]
