"""From a selection's tensors to the native kernel's addresses."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._features import features
from torchyard_cpu._tensor_reader import NativePath, reads_tensors
from torchyard_kernels.topk.contract import DTYPES, Order, TopKCall, TopKRequest, TopKResult

__all__ = ["NativeTopK"]

_ORDERS: Final = (Order.SORTED, Order.INDEX, Order.LAST)


class _TopKPath(NativePath):
    __slots__ = ()

    def enable(self, request: TopKRequest) -> bool:
        # Native code reads contiguous rows alone.
        if request.unit_stride:
            self._enable(
                (
                    DTYPES.index(request.dtype),
                    request.rows,
                    request.length,
                    request.k,
                    int(request.largest),
                    _ORDERS.index(request.order),
                    int(request.masked),
                    int(request.segmented),
                )
            )
        return True


class NativeTopK:
    """Selects, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        found = features(isa)
        self._kernels: dict[torch.dtype, str] = {}
        for dtype in DTYPES:
            name = _native.select_topk(dtype, found)
            assert name is not None, f"the table has a kernel of every dtype: {dtype}"
            self._kernels[getattr(torch, dtype)] = name

    def fast_path(self, request: TopKRequest) -> NativePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        if not reads_tensors():
            return None
        return _TopKPath(_native.topk_fast_path(tuple(self._kernels.values())))

    def __call__(self, call: TopKCall) -> TopKResult:
        """Select. Working memory is a few thousand elements per thread, or 4 * k and more.

        A tensor whose rows do not follow one another at one distance, or whose elements do not lie
        side by side, is copied first.
        """
        x, length = call.x, call.x.shape[-1]
        width = 1 if call.order is Order.LAST else call.k
        if call.offsets is not None:
            x = x.contiguous()
            rows, stride = call.offsets.numel() - 1, 0
            shape: tuple[int, ...] = (rows, width)
        else:
            x, stride = _rows_of(x)
            rows = x.numel() // length if length else 0
            shape = (*call.x.shape[:-1], width)
        mask, mask_stride = (None, 0) if call.mask is None else _rows_of(call.mask)
        values = x.new_empty(shape)
        indices = x.new_empty(shape, dtype=torch.int64)
        _native.topk(
            self._kernels[x.dtype],
            address(x, "x"),
            rows,
            length,
            stride,
            0 if mask is None else address(mask, "mask"),
            mask_stride,
            0 if call.offsets is None else address(call.offsets, "offsets"),
            call.k,
            int(call.largest),
            _ORDERS.index(call.order),
            address(values, "values"),
            address(indices, "indices"),
            torch.get_num_threads(),
        )
        return TopKResult(values, indices)


def _rows_of(tensor: Tensor) -> tuple[Tensor, int]:
    """Return the tensor, or a copy, whose rows lie at one distance, and that distance."""
    rows, distance = 1, 0
    fits = tensor.stride(-1) == 1 or tensor.shape[-1] == 1
    for size, stride in zip(
        reversed(tensor.shape[:-1]), reversed(tensor.stride()[:-1]), strict=True
    ):
        if size == 1:
            continue
        fits = fits and (rows == 1 or stride == rows * distance)
        distance = stride if rows == 1 else distance
        rows *= size
    return (tensor, distance) if fits else (tensor.contiguous(), tensor.shape[-1])
