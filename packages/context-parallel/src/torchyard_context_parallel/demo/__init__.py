"""``torchyard demo-ranks``: train the demo's model with its sequence spread over processes."""

from __future__ import annotations

from torchyard_context_parallel.demo._command import command

__all__ = ["command"]
