"""``select``: the first k of each row, by one kernel, or two where they are sorted."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult
from torchyard_mps._launch import PREAMBLE, THREADS, Launch, metal_text
from torchyard_mps._runner import run

__all__ = ["select"]

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ELEMENTS: Final = {
    torch.uint8: "uchar",
    torch.int8: "char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long",
}
# Of a row a thread compares each with each; more is sorted by torch.
_MOST_SORTED: Final = 1024


def select(call: TopKCall) -> TopKResult:
    """Compute ``topk/1``.

    Args:
        call: of any dtype of the contract but float64, which Metal does not have; rows of fewer
            than 2**31 elements.
    """
    x = call.x
    length, lead = x.shape[-1], x.shape[:-1]
    rows = math.prod(lead) if call.offsets is None else call.offsets.numel() - 1
    width = 1 if call.order is Order.LAST else call.k
    shape = (*lead, width) if call.offsets is None else (rows, width)
    bits = x if x.dtype == torch.uint8 else x.view(_INTEGERS[x.element_size()])
    bits = bits.reshape(math.prod(lead), length)
    wide = torch.int64 if bits.element_size() == 8 else torch.int32
    values, indices, ranks = (
        torch.empty((rows, width), dtype=dtype, device=x.device)
        for dtype in (bits.dtype, torch.int64, wide)
    )
    if values.numel():
        run(_selection(call, bits, values, indices, ranks))
        if call.order is Order.SORTED and width > 1:
            values, indices = _ordered(x.dtype, values, indices, ranks)
    return TopKResult(values.view(x.dtype).view(shape), indices.view(shape))


def _selection(
    call: TopKCall, bits: Tensor, values: Tensor, indices: Tensor, ranks: Tensor
) -> Launch:
    device = bits.device
    mask = None if call.mask is None else call.mask.reshape(bits.shape)
    mask_strides = (0, 0) if mask is None else mask.stride()
    segmented = call.offsets is not None
    strides = (0 if segmented else bits.stride(0), bits.stride(1))
    flags = (call.largest, call.order is Order.LAST, mask is not None, segmented)
    absent = _absent(call.x.dtype, call.largest)
    sizes = (call.k, bits.shape[1], *strides, *mask_strides, *map(int, flags), absent)
    none = torch.zeros(1, dtype=torch.int64, device=device)
    buffers = (
        bits if bits.numel() else none.to(bits.dtype),
        none.bool() if mask is None or not mask.numel() else mask,
        none if call.offsets is None else call.offsets,
        *(values, indices, ranks),
        torch.tensor(sizes, device=device),
    )
    source, groups = _source(call.x.dtype, bits.dtype), (values.shape[0], 1)
    return Launch(source, "topk_select", groups, THREADS, buffers, outputs=(3, 4, 5))


def _ordered(
    dtype: torch.dtype, values: Tensor, indices: Tensor, ranks: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what was selected, best first."""
    rows, width = values.shape
    if width > _MOST_SORTED:
        order = ranks.sort(dim=1, descending=True, stable=True).indices
        return values.gather(1, order), indices.gather(1, order)
    results = torch.empty_like(values), torch.empty_like(indices)
    sizes = torch.tensor([width], device=values.device)
    buffers = (values, indices, ranks, *results, sizes)
    source = _source(dtype, values.dtype)
    run(Launch(source, "topk_sort", (rows, 1), THREADS, buffers, outputs=(3, 4)))
    return results


def _source(dtype: torch.dtype, integers: torch.dtype) -> str:
    """Return the kernels for a dtype whose bits are integers of another."""
    bits = 8 * integers.itemsize
    signed, rank = ("long", "ulong") if bits == 64 else ("int", "uint")
    infinity = _bits_of(math.inf, dtype) if dtype.is_floating_point else 0
    defined = (
        f"typedef {_ELEMENTS[integers]} Element;",
        f"typedef {signed} Signed;",
        f"typedef {rank} Rank;",
        f"#define BITS {bits}",
        f"#define INFINITY_BITS {infinity}",
    )
    return "\n".join([PREAMBLE, *defined, metal_text("topk")])


def _absent(dtype: torch.dtype, largest: bool) -> int:
    """Return the bits of the value that comes last in the order."""
    if dtype.is_floating_point:
        return _bits_of(-math.inf if largest else math.inf, dtype)
    limits = torch.iinfo(dtype)
    return limits.min if largest else limits.max


def _bits_of(value: float, dtype: torch.dtype) -> int:
    """Return a floating point number's bits as a signed integer."""
    return int(torch.tensor(value, dtype=dtype).view(_INTEGERS[dtype.itemsize]).item())
