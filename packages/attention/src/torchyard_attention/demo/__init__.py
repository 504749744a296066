"""``torchyard demo``: train a small transformer on real text, continue a prompt, compare."""

from __future__ import annotations

from torchyard_attention.demo._command import command

__all__ = ["command"]
