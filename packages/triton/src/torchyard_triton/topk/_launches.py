"""The launches of a selection's kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.topk.contract import Order, TopKCall
from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton._launch import Launch
from torchyard_triton.topk._ways import Ways

__all__ = ["Elements", "Results", "count_launch", "network_launch", "select_launch", "sort_launch"]

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """What a selection writes, [rows, width] contiguous.

    Attributes:
        values: bits, as integers. indices: int64. ranks: int32, of 8 bytes int64.
    """

    values: Tensor
    indices: Tensor
    ranks: Tensor

    @classmethod
    def empty(cls, rows: int, width: int, like: Tensor) -> Results:
        """Return memory for results of elements whose bits are ``like``."""
        wide = torch.int64 if like.element_size() == 8 else torch.int32
        shape, device = (rows, width), like.device
        return cls(
            torch.empty(shape, dtype=like.dtype, device=device),
            torch.empty(shape, dtype=torch.int64, device=device),
            torch.empty(shape, dtype=wide, device=device),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """What is selected from.

    Attributes:
        call: whose elements they are.
        bits: [rows, length], as integers.
        mask: likewise; None: all are seen.
        mapped: int64, likewise, contiguous: the index that an element has, -1 where there is none;
            None: its place.
    """

    call: TopKCall
    bits: Tensor
    mask: Tensor | None
    mapped: Tensor | None

    @classmethod
    def of(cls, call: TopKCall) -> Elements:
        """Return a call's."""
        x = call.x
        shape = math.prod(x.shape[:-1]), x.shape[-1]
        bits = x if x.dtype == torch.uint8 else x.view(_INTEGERS[x.element_size()])
        mask = None if call.mask is None else call.mask.reshape(shape)
        return cls(call, bits.reshape(shape), mask, None)

    def selected(self, results: Results) -> Elements:
        """Return what was selected of their parts."""
        return replace(self, bits=results.values, mapped=results.indices, mask=None)

    @property
    def length(self) -> int:
        """How many a row has."""
        return self.bits.shape[1]

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return bits, mask and mapped; what is read of none that is absent."""
        mask = self.bits if self.mask is None else self.mask
        return self.bits, mask, self.bits if self.mapped is None else self.mapped

    def strides(self) -> tuple[int, int, int, int, int]:
        """Return those of bits and mask, and the bits that stand for no element."""
        row = 0 if self.call.offsets is not None else self.bits.stride(0)
        of_mask = (0, 0) if self.mask is None else (self.mask.stride(0), self.mask.stride(1))
        absent = _absent(self.call.x.dtype, self.call.largest)
        return (row, self.bits.stride(1), *of_mask, absent)

    def constants(self, *, last: bool) -> dict[str, Any]:
        """Return the constants that every kernel here has."""
        dtype = self.call.x.dtype
        return {
            "INFINITY": _bits_of(math.inf, dtype) if dtype.is_floating_point else 0,
            "BITS": 8 * self.bits.element_size(),
            "LARGEST": self.call.largest,
            "LAST": last,
            "MASKED": self.mask is not None,
            "MAPPED": self.mapped is not None,
        }


def select_launch(
    elements: Elements, results: Results, grid: tuple[int, int], part: int, *, last: bool
) -> Launch:
    """Return the selection by histograms: of any parts, and of segments."""
    from torchyard_triton.device.topk.select import topk_select

    offsets = elements.call.offsets
    bits, mask, mapped = elements.inputs()
    arguments = (
        *(bits, mask, bits if offsets is None else offsets, mapped),
        *(results.values, results.indices, results.ranks),
        *(elements.call.k, elements.length, part, *elements.strides()),
    )
    constants = elements.constants(last=last) | {"SEGMENTED": offsets is not None}
    tiles = _tiles("topk_select")
    constants |= {"BLOCK": tiles["block"], "num_warps": tiles["warps"]}
    return Launch(topk_select, grid, arguments, constants)


def count_launch(
    elements: Elements,
    results: Results,
    grid: tuple[int, int],
    part: int,
    ways: Ways,
    *,
    last: bool,
) -> Launch:
    """Return the selection by counts: of parts that a program holds."""
    from torchyard_triton.device.topk.count import topk_count

    arguments = (
        *(*elements.inputs(), results.values, results.indices, results.ranks),
        *(elements.call.k, elements.length, part, *elements.strides()),
    )
    tile = max(2, _padded(part))
    constants = elements.constants(last=last) | {"TILE": tile}
    constants["num_warps"] = max(1, tile // ways.counted_warp)
    return Launch(topk_count, grid, arguments, constants)


def network_launch(elements: Elements, results: Results, rows: int, ways: Ways) -> Launch:
    """Return the selection of short rows by a bitonic network, in the order that is asked for."""
    from torchyard_triton.device.topk.bitonic import topk_bitonic

    call = elements.call
    arguments = (
        *(*elements.inputs(), results.values, results.indices),
        *(call.k, elements.length, *elements.strides()),
    )
    tile = max(2, _padded(elements.length), _padded(call.k))
    constants = elements.constants(last=call.order is Order.LAST)
    constants |= {
        "BY_INDEX": call.order is Order.INDEX,
        "TILE": tile,
        "PADDED": max(2, _padded(call.k)),
        "num_warps": max(1, tile // ways.network_warp),
    }
    return Launch(topk_bitonic, (rows,), arguments, constants)


def sort_launch(results: Results, finals: Results) -> Launch:
    """Return the sort of what was selected, best first."""
    from torchyard_triton.device.topk.sort import topk_sort

    rows, width = results.values.shape
    arguments = (
        *(results.values, results.indices, results.ranks),
        *(finals.values, finals.indices, width),
    )
    constants = {"PADDED": _padded(width), "num_warps": _tiles("topk_sort")["warps"]}
    return Launch(topk_sort, (rows,), arguments, constants)


def _tiles(kernel: str) -> dict[str, int]:
    """Return what a kernel is compiled with on every architecture."""
    found: dict[str, int] = frozen_table("topk/ways.json")["default"][kernel]
    return found


def _padded(size: int) -> int:
    """Return the least power of two that is as great, 1 or more."""
    return 1 << max(0, size - 1).bit_length()


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
