"""The ``torchyard`` command."""

from __future__ import annotations

from torchyard.cli._main import main

__all__ = ["main"]
