"""From a linear call's tensors to the native kernel's addresses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._chains import LINEAR, native_chain
from torchyard_cpu._features import features
from torchyard_cpu._packed_addresses import packed_addresses
from torchyard_cpu._tensor_reader import TENSOR_DTYPES, NativePath, reads_tensors
from torchyard_cpu.linear import DTYPES
from torchyard_cpu.linear._functions import native_function, path_functions
from torchyard_kernels.linear.contract import LinearCall, LinearRequest, Packed
from torchyard_kernels.linear.contract.chain import Chain

__all__ = ["NativeLinear", "row_places", "weight_places"]

_Rows: TypeAlias = tuple[int, int, int, int, int]

_POISON: Final = False


class _LinearPath(NativePath):
    __slots__ = ()

    def enable(self, request: LinearRequest) -> bool:
        self._enable(_key(request))
        return True


class _FusedPath(NativePath):
    """Calls with functions of one structure."""

    __slots__ = ("_kind",)

    def __init__(self, functions: _native.PathFunctions, request: LinearRequest) -> None:
        super().__init__(functions)
        self._kind = _kind(request)

    def enable(self, request: LinearRequest) -> bool:
        if _kind(request) != self._kind:
            return False
        # Native code runs functions on one batch alone.
        if request.batch == 1:
            self._enable(_key(request))
        return True


def _kind(request: LinearRequest) -> LinearRequest:
    """Return a request without what one path with functions computes any of."""
    return replace(
        request, rows=0, outputs=0, depth=0, batch=1, weight="", weight_options=(), bias=False
    )


def _key(request: LinearRequest) -> tuple[int, ...]:
    """Return a request as native LinearKey has it."""
    return (
        DTYPES.index(request.dtype),
        request.rows,
        request.outputs,
        request.depth,
        int(bool(request.weight)),
        int(request.bias),
        request.batch,
    )


class NativeLinear:
    """The product, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        found = features(isa)
        self._programs = _native.select_program(found)
        self._kernels: dict[torch.dtype, str] = {}
        for dtype in DTYPES:
            name = _native.select_linear(dtype, found, None)
            assert name is not None, f"the table has a kernel of {dtype} for any processor"
            self._kernels[getattr(torch, dtype)] = name

    def fast_path(self, request: LinearRequest) -> NativePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        if not reads_tensors():
            return None
        kernels = tuple(self._kernels.values())
        if not request.prologue and not request.epilogue:
            return _LinearPath(_native.linear_fast_path(kernels))
        before, after, result = path_functions(request)
        of = DTYPES.index(request.dtype), TENSOR_DTYPES.index(result), before, after
        native = _native.fused_linear_fast_path(kernels, self._programs, *of)
        return _FusedPath(native, request)

    def chain(self, chain: Chain) -> Callable[..., Tensor | None] | None:
        """Return what runs a chain; see ``torchyard_kernels.linear.contract.chain``."""
        return native_chain(chain, self._programs, self._product)

    def _product(self, weight: Packed) -> tuple[int, str, tuple[int, ...]] | None:
        spec, data = weight.spec, weight.tensors[0]
        if spec.format != "panels" or not data.is_cpu or not spec.columns:
            return None
        kernel = self._kernels[getattr(torch, spec.dtype)]
        return LINEAR, kernel, (spec.rows, spec.columns, *packed_addresses(spec, (data,)))

    def __call__(self, call: LinearCall) -> Tensor:
        """Compute out. Working memory is x in words and four chunks of panels per thread."""
        x, weight = call.x, call.weight
        if isinstance(weight, Packed):
            batches, outputs, depth = 1, weight.spec.rows, weight.spec.columns
            place = *packed_addresses(weight.spec, weight.tensors), 1, 0, 0, 0
        else:
            weight, place = weight_places(weight)
            outputs, depth = weight.shape[-2:]
            batches = weight.shape[0] if weight.ndim == 3 else 1
        shape = torch.Size((*x.shape[:-1], outputs // 2 if call.gated else outputs))
        before = after = None
        dtype = x.dtype
        # Copies, which must live as long as their addresses are in use.
        kept: list[Tensor] = []
        if call.prologue is not None:
            before, _, kept = native_function(call.prologue, self._programs, x, x.shape)
        if call.epilogue is not None:
            after, (dtype,), more = native_function(call.epilogue, self._programs, x, shape)
            kept += more
        out = x.new_empty(shape, dtype=dtype)
        x, rows = row_places(x, batched=not isinstance(weight, Packed) and weight.ndim == 3)
        sizes = batches, math.prod(shape[:-1]) // max(1, batches), outputs, depth
        bias = call.bias
        if bias is not None and bias.stride(0) != 1:
            bias = bias.contiguous()
        _native.linear_forward(
            self._kernels[x.dtype],
            sizes,
            rows,
            place,
            0 if bias is None else address(bias, "bias"),
            address(out, "out"),
            before,
            after,
            torch.get_num_threads(),
            _POISON,
        )
        return out


def row_places(x: Tensor, *, batched: bool) -> tuple[Tensor, _Rows]:
    """Return x, or a copy where its rows cannot be told in two strides, and the place of its rows.

    Args:
        x: [..., K]; [B, M, K] if ``batched``, where each batch has its own weight.
    """
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        x = x.contiguous()
    if batched:
        batch, row, _ = x.stride()
        return x, (address(x, "x"), batch, 0, max(1, x.shape[1]), row)
    levels = _levels(x)
    if levels is None:
        x = x.contiguous()
        levels = [(math.prod(x.shape[:-1]), x.shape[-1])]
    inner, row = levels[-1]
    outer = levels[0][1] if len(levels) == 2 else 0
    return x, (address(x, "x"), 0, outer, inner, row)


def _levels(x: Tensor) -> list[tuple[int, int]] | None:
    """Return (size, stride) of the rows' dimensions, merged where they can be; None above two."""
    if x.numel() == 0:
        return [(1, 0)]
    levels: list[tuple[int, int]] = []
    for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if size == 1:
            continue
        if levels and levels[-1][1] == size * stride:
            levels[-1] = levels[-1][0] * size, stride
        else:
            levels.append((size, stride))
    if not levels:
        return [(1, 0)]
    return levels if len(levels) <= 2 else None


def weight_places(weight: Tensor) -> tuple[Tensor, _Rows]:
    """Return a plain weight, or a copy where no stride is 1, and its place."""
    row, column = weight.stride()[-2:]
    if weight.shape[-1] <= 1:
        column = 1
    elif row != 1 and column != 1:
        weight = weight.contiguous()
        row, column = weight.stride()[-2:]
    batch = weight.stride(0) if weight.ndim == 3 else 0
    return weight, (address(weight, "weight"), 0, batch, row, column)
