"""Gradients of captured tensors: parts that a kernel writes, summed by the place they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_triton.lowering import LoweredSite

__all__ = ["captured_gradient", "spread_of", "sum_by_place"]

# Bytes that parts and places of one launch take at most, unless a single tile's take more.
_MEMORY: Final = 64 << 20
_BYTES: Final = 12


def spread_of(site: LoweredSite) -> int:
    """Return 0, 1 or 2: whether a site's place is one for a tile, for a row or for a pair."""
    return 2 if "k" in site.inputs or "s" in site.inputs else int("q" in site.inputs)


def captured_gradient(
    launch: Callable[..., Any],
    site: LoweredSite,
    tensor: Tensor,
    sizes: tuple[int, int, int, int],
) -> Tensor:
    """Return what one site gives to its tensor's gradient, in float64, flat.

    Args:
        launch: runs the kernel for (parts, places, first tile, first head), whose shapes are
            [heads, tiles, ...].
        site: the site.
        tensor: the captured tensor.
        sizes: heads of all batches, tiles of rows, rows per tile, Sk.
    """
    heads, tiles, rows, keys = sizes
    shape = {0: (), 1: (rows,), 2: (rows, keys)}[spread_of(site)]
    each = _BYTES * max(1, torch.Size(shape).numel())
    at_once = max(1, _MEMORY // each)
    total = torch.zeros(tensor.numel(), dtype=torch.float64, device=tensor.device)
    tile_step, head_step = min(tiles, at_once), max(1, min(heads, at_once // tiles))
    for head in range(0, heads, head_step):
        for tile in range(0, tiles, tile_step):
            part_heads, part_tiles = min(head_step, heads - head), min(tile_step, tiles - tile)
            size = (part_heads, part_tiles, *shape)
            parts = torch.zeros(size, dtype=torch.float32, device=tensor.device)
            places = torch.full(size, -1, dtype=torch.int64, device=tensor.device)
            launch(parts, places, tile, head)
            total += sum_by_place(parts.flatten(), places.flatten(), tensor.numel())
    return total


def sum_by_place(parts: Tensor, places: Tensor, count: int) -> Tensor:
    """Return float64 [count]: the sum of the parts of each place, each in the order of the parts.

    By a stable sort and sums of segments, which have one order; a scattered addition on a GPU has
    none.

    Args:
        parts: float32 [n]. places: int64 [n]; those below 0 are no place.
        count: of places.
    """
    ordered, order = places.sort(stable=True)
    ends = torch.arange(count + 1, device=places.device)
    bounds = torch.searchsorted(ordered, ends)
    values = parts[order].double()[bounds[0] :]
    return torch.segment_reduce(values, "sum", lengths=bounds.diff(), unsafe=True, initial=0.0)
