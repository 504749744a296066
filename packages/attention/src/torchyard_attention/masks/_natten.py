"""Neighbourhood attention: windows that stop at the border and keep their size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    Intervals,
    StructuredMask,
    Visibility,
)
from torchyard_attention._validation import positions

# A row of blocks that spans more rows of the image's keys gets one interval for all of them.
_MOST_ROWS = 32


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Natten1d:
    last: int
    back: int
    kernel: int

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        start = _start(q_idx, self.last, self.back)
        return (kv_idx >= start) & (kv_idx < start + self.kernel)

    def visibility(self, rows: BlockRows) -> Visibility:
        return Visibility.between(
            rows,
            lambda q: _start(q, self.last, self.back),
            lambda q: _start(q, self.last, self.back) + self.kernel,
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Natten2d:
    width: int
    last: tuple[int, int]
    back: tuple[int, int]
    kernel: tuple[int, int]

    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        top = _start(q_idx // self.width, self.last[0], self.back[0])
        left = _start(q_idx % self.width, self.last[1], self.back[1])
        row, column = kv_idx // self.width, kv_idx % self.width
        return (
            (row >= top)
            & (row < top + self.kernel[0])
            & (column >= left)
            & (column < left + self.kernel[1])
        )

    def visibility(self, rows: BlockRows) -> Visibility:
        first_row, last_row = rows.first // self.width, rows.last // self.width
        alone = first_row == last_row
        tall, wide = self.kernel
        left = _start(rows.first % self.width, self.last[1], self.back[1])
        right = _start(rows.last % self.width, self.last[1], self.back[1])
        top = _start(first_row, self.last[0], self.back[0])
        bottom = _start(last_row, self.last[0], self.back[0])
        # A row of blocks that goes on in the image's next row holds its last and first columns.
        outer = (torch.where(alone, left, 0), torch.where(alone, right + wide, self.width))
        inner = (torch.where(alone, right, self.width - wide), torch.where(alone, left, 0) + wide)
        count = tall + (rows.height + self.width - 2) // self.width
        if count > _MOST_ROWS:
            nothing = torch.zeros_like(top)[:, None]
            some = Intervals((top * self.width)[:, None], ((bottom + tall) * self.width)[:, None])
            return Visibility(some, Intervals(nothing, nothing))
        return Visibility(
            self._columns(top, bottom + tall, *outer, count),
            self._columns(bottom, top + tall, *inner, count),
        )

    def _columns(
        self, first: Tensor, end: Tensor, left: Tensor, right: Tensor, count: int
    ) -> Intervals:
        """Return columns [left, right) of the image's rows [first, end), one interval per row."""
        row = first[:, None] + torch.arange(count, device=first.device)
        start = row * self.width + left[:, None]
        stop = row * self.width + right[:, None]
        return Intervals(start, torch.where(row < end[:, None], stop, start))


def natten_1d(length: int, kernel: int) -> StructuredMask:
    """Show a query the ``kernel`` positions around its own, moved inwards at the ends.

    Source: Neighborhood Attention Transformer (arXiv 2204.07143).

    Args:
        length: of the sequence.
        kernel: positions that every query sees, 1 to length; an even one looks one further back.
    """
    length = positions("natten_1d", "length", length, least=1)
    kernel = _kernel("natten_1d", "kernel", kernel, length)
    return _Natten1d(length - kernel, kernel // 2, kernel)


def natten_2d(shape: tuple[int, int], kernel: tuple[int, int]) -> StructuredMask:
    """Show a query the rectangle of ``kernel`` positions around its own, moved inwards at borders.

    Args:
        shape: height and width of the image; position (row, column) is row * width + column.
        kernel: height and width of the rectangle.
    """
    of, two = "natten_2d", "two sizes"
    height, width = arguments.sequence(of, "shape", shape, _size, expected=two, length=2)
    rows, columns = arguments.sequence(
        of, "kernel", kernel, arguments.integer, expected=two, length=2
    )
    shape = height, width
    kernel = _kernel(of, "kernel[0]", rows, height), _kernel(of, "kernel[1]", columns, width)
    last = (shape[0] - kernel[0], shape[1] - kernel[1])
    return _Natten2d(shape[1], last, (kernel[0] // 2, kernel[1] // 2), kernel)


def _start(position: Tensor, last: int, back: int) -> Tensor:
    """Return where a position's window begins: ``back`` before it, within 0 and ``last``."""
    return (position - back).clamp(0, last)


def _size(of: str, name: str, value: object) -> int:
    return positions(of, name, value, least=1)


def _kernel(of: str, name: str, kernel: object, length: int) -> int:
    found = arguments.integer(of, name, kernel)
    if not 1 <= found <= length:
        raise ValueError(f"{of}: {name}: expected 1 to {length}, the length, got {found}")
    return found
