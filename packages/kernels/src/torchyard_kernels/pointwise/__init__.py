"""``foreach_map``: pointwise functions over lists of tensors."""

from __future__ import annotations

__all__: list[str] = []
