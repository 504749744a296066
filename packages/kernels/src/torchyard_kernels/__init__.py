"""Half-precision and quantised linear, topk, recurrent cells, foreach_map and execution graphs."""

from __future__ import annotations

__all__: list[str] = []
