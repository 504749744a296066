"""Tiles by architecture and kernel, frozen in ``tuning.json`` with their date and reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton._measured_tiles import measured_tiles
from torchyard_triton.architectures import names_of
from torchyard_triton.attention._launch import Tiles, padded

__all__ = ["heads_of", "table_tiles", "tiles_for", "tiles_of"]

# Bytes of an element, and of a row, that the table's tiles are for.
_HALF: Final = 2
_ROW: Final = 256
_LEAST: Final = 16
_FILE: Final = "tuning.json"


@cache
def tiles_of(architecture: str) -> Mapping[str, Tiles]:
    """Return the tiles of each kernel on an architecture; a default where it has no own."""
    table = frozen_table(_FILE)
    rows = dict(table["default"])
    for name in reversed(names_of(architecture)):
        rows |= table["architectures"].get(name, {})
    return {kernel: Tiles(**sizes) for kernel, sizes in rows.items()}


@cache
def heads_of(architecture: str) -> Mapping[int, Mapping[str, Tiles]]:
    """Return the sizes of heads for which kernels have tiles of their own, by size and kernel.

    A size is a power of two, for heads that are padded to it, of two-byte elements.
    """
    found: dict[int, Mapping[str, Tiles]] = {}
    for size, rows in frozen_table(_FILE)["heads"]["sizes"].items():
        own: dict[str, Any] = {}
        for name in reversed(names_of(architecture)):
            own |= rows.get(name, {})
        if own:
            found[int(size)] = {kernel: Tiles(**sizes) for kernel, sizes in own.items()}
    return found


def tiles_for(architecture: str, kernel: str, head_dim: int, itemsize: int = _HALF) -> Tiles:
    """Return a kernel's tiles for heads of a size: those measured here, else the table's.

    Args:
        architecture, kernel: names, as in the table.
        head_dim: of the heads.
        itemsize: bytes of an element.
    """
    tiles = table_tiles(architecture, kernel, head_dim, itemsize)
    measured = measured_tiles(architecture, kernel, head_dim) if itemsize == _HALF else {}
    return replace(tiles, **measured)


def table_tiles(architecture: str, kernel: str, head_dim: int, itemsize: int = _HALF) -> Tiles:
    """Return the table's tiles for heads of a size; see :func:`tiles_for`.

    They are those of rows of up to 128 elements of two bytes. Longer rows have smaller tiles, so
    that as many bytes are in shared memory. Some sizes have tiles of their own.
    """
    own = heads_of(architecture).get(padded(head_dim), {}) if itemsize == _HALF else {}
    if kernel in own:
        return own[kernel]
    tiles = tiles_of(architecture).get(kernel, Tiles())
    rows, keys = tiles.rows, tiles.keys
    for longer in (_ROW, 2 * _ROW):
        if head_dim * itemsize > longer:
            rows, keys = max(_LEAST, rows // 2), max(_LEAST, keys // 2)
    return replace(tiles, rows=rows, keys=keys)
