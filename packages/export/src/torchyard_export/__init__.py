"""Export that verifies what it made, recurrent models with dynamic time included."""

from __future__ import annotations

__all__: list[str] = []
