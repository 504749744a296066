"""The meaning of ``topk/1``, one row at a time, in Python's numbers.

They hold every element exactly: float64 those of floating point, whole numbers those of integers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import torch

from torchyard_kernels.topk._absent import absent
from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult

__all__ = ["reference_topk"]


def reference_topk(call: TopKCall) -> TopKResult:
    """Select as the contract says. Slow: for tests, and as the implementation of last resort."""
    length = call.x.shape[-1] if call.x.dim() else 1
    width = 1 if call.order is Order.LAST else call.k
    shape = (*call.x.shape[:-1], width)
    if call.offsets is not None:
        shape = (call.offsets.numel() - 1, width)
    elements: list[float] = call.x.reshape(-1).tolist()
    indices = [
        [index % length if index >= 0 and call.offsets is None else index for index in row]
        for row in (_first(elements, list(row), call) for row in _rows(call, length))
    ]
    found = torch.tensor(indices, dtype=torch.int64, device=call.x.device).reshape(shape)
    rows = call.x if call.offsets is None else call.x.expand(*shape[:-1], length)
    values = rows.gather(-1, found.clamp(min=0)) if length else rows.new_empty(shape)
    return TopKResult(torch.where(found < 0, absent(call.x.dtype, call.largest), values), found)


def _rows(call: TopKCall, length: int) -> Iterator[Iterable[int]]:
    """Yield each row's positions in x as a flat list, without those that are hidden."""
    if call.offsets is not None:
        bounds = call.offsets.tolist()
        yield from (range(start, end) for start, end in itertools.pairwise(bounds))
        return
    rows = call.x.numel() // length if length else math.prod(call.x.shape[:-1])
    seen = None if call.mask is None else call.mask.reshape(-1).tolist()
    for row in range(rows):
        positions = range(row * length, (row + 1) * length)
        yield positions if seen is None else [at for at in positions if seen[at]]


def _first(elements: list[float], row: list[int], call: TopKCall) -> list[int]:
    """Return the positions of the first k, and -1 for those that the row lacks."""

    def rank(position: int) -> tuple[bool, float]:
        value = elements[position]
        nan = value != value
        return nan, 0.0 if nan else value

    # Stable, in reverse too: equal elements keep the order of their indices.
    first = sorted(row, key=rank, reverse=call.largest)[: call.k]
    first += [-1] * (call.k - len(first))
    if call.order is Order.LAST:
        return first[-1:]
    if call.order is Order.INDEX:
        return sorted(first, key=lambda position: (position < 0, position))
    return first
