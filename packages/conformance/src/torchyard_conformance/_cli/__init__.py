"""``torchyard certify``."""

from __future__ import annotations

from torchyard_conformance._cli._group import command

__all__ = ["command"]
