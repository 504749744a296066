"""Gradients of captured tensors: parts that a kernel writes, summed by the place they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from torchyard_mps._launch import PREAMBLE, Launch, groups_for, metal_text
from torchyard_mps._runner import run
from torchyard_mps.attention._tensors import ROWS, THREADS
from torchyard_mps.lowering import LoweredSite

__all__ = ["PlaceSums", "spread_of", "write_parts"]

# Bytes that parts and places of one launch take at most, unless a single tile's take more.
_MEMORY: Final = 64 << 20
_BYTES: Final = 12
_LANES: Final = 32


def spread_of(site: LoweredSite) -> int:
    """Return 0, 1 or 2: whether a site's place is one for a tile, for a row or for a pair."""
    return 2 if "k" in site.inputs or "s" in site.inputs else int("q" in site.inputs)


class PlaceSums:
    """Sums of parts by place, which are added to in one order.

    Args:
        count: of places.
        device: of parts.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self._count = count
        self._high, self._low = (torch.zeros(max(1, count), device=device) for _ in range(2))

    def add(self, parts: Tensor, places: Tensor) -> None:
        """Add parts, each to its place.

        Args:
            parts: float32 [n]. places: int64 [n]; those below 0 are no place.
        """
        # A stable sort and sums of segments have one order; atomic additions have none.
        ordered, order = places.sort(stable=True)
        sizes = torch.tensor([parts.numel(), self._count], device=parts.device)
        buffers = (parts[order], ordered, self._high, self._low, sizes)
        source = "\n".join([PREAMBLE, metal_text("attention/sums")])
        groups = (groups_for(self._count * _LANES), 1)
        if self._count and parts.numel():
            run(Launch(source, "sum_by_place", groups, THREADS, buffers, (), (2, 3)))

    @property
    def total(self) -> Tensor:
        """Float32 [count]: the sums."""
        return (self._high + self._low)[: self._count]


def write_parts(
    launch: Callable[[Tensor, Tensor, int, int], Launch],
    site: LoweredSite,
    sums: PlaceSums,
    sizes: tuple[int, int, int],
    device: torch.device,
) -> None:
    """Add what one site gives to its tensor's gradient.

    Args:
        launch: of the kernel, for (parts, places, first tile, first head), whose shapes are
            [heads, tiles, ...].
        site: the site.
        sums: of the site's tensor.
        sizes: heads of all batches, tiles of rows, Sk.
        device: of the call.
    """
    heads, tiles, keys = sizes
    shape = {0: (), 1: (ROWS,), 2: (ROWS, keys)}[spread_of(site)]
    at_once = max(1, _MEMORY // (_BYTES * torch.Size(shape).numel()))
    tile_step, head_step = min(tiles, at_once), max(1, min(heads, at_once // tiles))
    for head in range(0, heads, head_step):
        for tile in range(0, tiles, tile_step):
            size = (min(head_step, heads - head), min(tile_step, tiles - tile), *shape)
            parts = torch.zeros(size, device=device)
            places = torch.full(size, -1, dtype=torch.int64, device=device)
            run(launch(parts, places, tile, head))
            sums.add(parts.flatten(), places.flatten())
