"""``torchyard release``."""

from __future__ import annotations

from torchyard_release._cli._group import command

__all__ = ["command"]
