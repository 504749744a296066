"""linear, matmul and bmm: api, op, packed weights, implementations in torch."""

from __future__ import annotations

__all__: list[str] = []
