"""Tiles by architecture and kernel, frozen in ``tuning.json`` with their date and reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from torchyard_triton._measured_tiles import measured_tiles
from torchyard_triton.architectures import names_of
from torchyard_triton.attention._launch import Tiles

__all__ = ["table_tiles", "tiles_for", "tiles_of"]


@cache
def _table() -> dict[str, Any]:
    text = files("torchyard_triton").joinpath("tuning.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


@cache
def tiles_of(architecture: str) -> Mapping[str, Tiles]:
    """Return the tiles of each kernel on an architecture; a default where it has no own."""
    table = _table()
    rows = dict(table["default"])
    for name in reversed(names_of(architecture)):
        rows |= table["architectures"].get(name, {})
    return {kernel: Tiles(**sizes) for kernel, sizes in rows.items()}


def tiles_for(architecture: str, kernel: str, head_dim: int) -> Tiles:
    """Return a kernel's tiles for heads of a size: those measured here, else the table's."""
    return measured_tiles(architecture, kernel, head_dim) or table_tiles(
        architecture, kernel, head_dim
    )


def table_tiles(architecture: str, kernel: str, head_dim: int) -> Tiles:
    """Return the table's tiles for heads of a size: as they are up to 128, smaller ones above."""
    tiles = tiles_of(architecture).get(kernel, Tiles())
    if head_dim <= 128:
        return tiles
    return Tiles(max(16, tiles.rows // 2), max(16, tiles.keys // 2), tiles.warps, tiles.stages)
