"""The contracts of this package's ops, one module per family: what a plugin may import of it."""

from __future__ import annotations

__all__: list[str] = []
