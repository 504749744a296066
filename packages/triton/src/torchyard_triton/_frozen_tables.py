"""Tables of what kernels are compiled with, each frozen with its date and reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["frozen_table"]


@cache
def frozen_table(name: str) -> Mapping[str, Any]:
    """Return a table.

    Besides its own rows a table has ``frozen``, the date; ``triton``, the minor version of Triton
    that compiled them; and ``reason``.

    Args:
        name: the file's path in this package, such as ``linear/tiles.json``.
    """
    text = files("torchyard_triton").joinpath(name).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table
