"""The kit that certifies a device or an implementation for torchyard."""

from __future__ import annotations

__all__: list[str] = []
