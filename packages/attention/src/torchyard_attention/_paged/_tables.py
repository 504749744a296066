"""Tables of pages, and places in pages, as tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["page_table", "places_in_pages"]


def page_table(pages: list[Any]) -> Tensor:
    """Return arrays of pages as int32 [B, longest], 0 after the last page of each."""
    width = max(len(row) for row in pages)
    table = torch.zeros((len(pages), width), dtype=torch.int32)
    for number, row in enumerate(pages):
        if len(row):
            # The view of the array ends here: an array with a view cannot grow.
            table[number, : len(row)] = torch.frombuffer(row, dtype=torch.int32)
    return table


def places_in_pages(
    table: Tensor, ends: list[int], counts: tuple[int, ...], page_size: int
) -> tuple[Tensor, Tensor]:
    """Return page and slot of the last positions of sequences: int64 [T] each."""
    sizes = torch.tensor(counts)
    sequence = torch.arange(len(counts)).repeat_interleave(sizes)
    before = sizes.cumsum(0) - sizes
    shift = torch.tensor(ends) - sizes - before
    position = torch.arange(sum(counts)) + shift[sequence]
    return table[sequence, position // page_size].long(), position % page_size
