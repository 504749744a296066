"""``select``: the first k of each row, by two or three kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult
from torchyard_triton._launch import Launch

__all__ = ["Selection", "select", "selection_of"]

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# More is sorted by torch: a program holds all that it sorts.
_MOST_SORTED: Final = 1024
# A row is selected from in parts while there are fewer programs than this, if each part has this
# many elements or more and leaves a quarter of them at most.
_PROGRAMS: Final = 256
_SHORTEST_PART: Final = 8192
_BLOCK: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """How a call is computed.

    Attributes:
        launches: in order.
        values: [rows, width], the bits of what they select. indices: likewise.
        ranks: likewise; None where torch sorts nothing by them.
        shape: of the result.
        dtype: of x.
    """

    launches: tuple[Launch, ...]
    values: Tensor
    indices: Tensor
    ranks: Tensor | None
    shape: tuple[int, ...]
    dtype: torch.dtype

    def run(self) -> TopKResult:
        """Start the kernels."""
        for launch in self.launches:
            launch.run()
        values, indices = self.values, self.indices
        if self.ranks is not None:
            order = self.ranks.sort(dim=1, descending=True, stable=True).indices
            values, indices = values.gather(1, order), indices.gather(1, order)
        return TopKResult(values.view(self.dtype).view(self.shape), indices.view(self.shape))


def select(call: TopKCall, *, part: int | None = None) -> TopKResult:
    """Compute ``topk/1``.

    Args:
        call: rows of fewer than 2**31 - 2**16 elements.
        part: how many elements of a row one program selects from; None: chosen from sizes.
    """
    return selection_of(call, part=part).run()


def selection_of(call: TopKCall, *, part: int | None = None) -> Selection:
    """Return how a call is computed. Arguments as of :func:`select`."""
    x = call.x
    length = x.shape[-1]
    lead = x.shape[:-1]
    rows = math.prod(lead) if call.offsets is None else call.offsets.numel() - 1
    width = 1 if call.order is Order.LAST else call.k
    bits = x if x.dtype == torch.uint8 else x.view(_INTEGERS[x.element_size()])
    bits = bits.reshape(math.prod(lead), length)
    mask = None if call.mask is None else call.mask.reshape(math.prod(lead), length)
    if part is None:
        part = _part(rows, length, call.k)
    parts = 1 if call.offsets is not None else -(-length // part)
    launches = []
    mapped: Tensor | None = None
    if parts > 1:
        found = _results(bits, (rows, parts * call.k))
        launches.append(
            _select_launch(call, bits, mask, None, found, (rows, parts), part, last=False)
        )
        bits, mapped, mask = found[0], found[1], None
    results = _results(bits, (rows, width))
    last = call.order is Order.LAST
    longest = bits.shape[1]
    launches.append(
        _select_launch(call, bits, mask, mapped, results, (rows, 1), max(1, longest), last=last)
    )
    values, indices, ranks = results
    shape = (*lead, width) if call.offsets is None else (rows, width)
    sorts = call.order is Order.SORTED and width > 1
    if sorts and width <= _MOST_SORTED and ranks.dtype == torch.int32:
        finals = torch.empty_like(values), torch.empty_like(indices)
        constants = {"PADDED": 1 << (width - 1).bit_length(), "num_warps": 4}
        launches.append(_sort_launch((values, indices, ranks, *finals, width), rows, constants))
        values, indices = finals
        sorts = False
    return Selection(tuple(launches), values, indices, ranks if sorts else None, shape, x.dtype)


def _part(rows: int, length: int, k: int) -> int:
    """Return how many elements of a row one program selects from."""
    least = max(_SHORTEST_PART, 4 * k)
    parts = min(length // least, -(-_PROGRAMS // max(1, rows)))
    return -(-length // parts) if parts > 1 else max(1, length)


def _results(bits: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return memory for the bits, indices and ranks of a selection."""
    wide = torch.int64 if bits.element_size() == 8 else torch.int32
    return (
        torch.empty(shape, dtype=bits.dtype, device=bits.device),
        torch.empty(shape, dtype=torch.int64, device=bits.device),
        torch.empty(shape, dtype=wide, device=bits.device),
    )


def _select_launch(
    call: TopKCall,
    bits: Tensor,
    mask: Tensor | None,
    mapped: Tensor | None,
    results: tuple[Tensor, Tensor, Tensor],
    grid: tuple[int, int],
    part: int,
    *,
    last: bool,
) -> Launch:
    from torchyard_triton.device.topk.select import topk_select

    dtype = call.x.dtype
    constants: dict[str, Any] = {
        "INFINITY": _bits_of(math.inf, dtype) if dtype.is_floating_point else 0,
        "BITS": 8 * bits.element_size(),
        "LARGEST": call.largest,
        "LAST": last,
        "MASKED": mask is not None,
        "SEGMENTED": call.offsets is not None,
        "MAPPED": mapped is not None,
        "BLOCK": _BLOCK,
        "num_warps": 4,
    }
    segmented = call.offsets is not None
    arguments = (
        bits,
        bits if mask is None else mask,
        results[1] if call.offsets is None else call.offsets,
        results[1] if mapped is None else mapped,
        *results,
        call.k,
        bits.shape[1],
        part,
        0 if segmented else bits.stride(0),
        bits.stride(1),
        0 if mask is None else mask.stride(0),
        0 if mask is None else mask.stride(1),
        _absent(dtype, call.largest),
    )
    return Launch(topk_select, grid, arguments, constants)


def _sort_launch(arguments: tuple[Any, ...], rows: int, constants: dict[str, Any]) -> Launch:
    from torchyard_triton.device.topk.sort import topk_sort

    return Launch(topk_sort, (rows,), arguments, constants)


def _absent(dtype: torch.dtype, largest: bool) -> int:
    """Return the bits of the value that comes last in the order."""
    if dtype.is_floating_point:
        return _bits_of(-math.inf if largest else math.inf, dtype)
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max


def _bits_of(value: float, dtype: torch.dtype) -> int:
    """Return a floating point number's bits as a signed integer."""
    number = torch.tensor(value, dtype=dtype)
    return int(number.view(_INTEGERS[dtype.itemsize]).item())
