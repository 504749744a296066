"""The native recurrent layers: from a call's tensors to addresses, and the fast path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._features import features, features_for_arithmetic
from torchyard_cpu._tensor_reader import NativePath, reads_tensors
from torchyard_cpu.recurrent import DTYPES, TILED
from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
    gates,
    reserve_columns,
)

__all__ = ["NativeRecurrent", "PackedCells", "Sizes", "recurrent_path", "run_kernel"]

Sizes: TypeAlias = tuple[int, int, int, int, int, int, int]

_KINDS: Final = tuple(RecurrentKind)
_PLACES: Final = {kind: place for place, kind in enumerate(RecurrentKind)}
_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class PackedCells:
    """Weights as a kernel reads them.

    Attributes:
        kernel: the kernel's name.
        sizes: the sizes that they were packed for.
        data: uint8, at least as much as the kernel asks for.
        address: where in data they begin.
        native: the same, as a native path takes it, which finds it by this name.
    """

    kernel: str
    sizes: Sizes
    data: Tensor
    address: int
    native: _native.PackedWeights


class NativeRecurrent:
    """The forward, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        # Tiles are fast where products of pairs by vectors are not.
        found = {TILED: features(isa)}
        vectors = features_for_arithmetic(isa)
        table = _native.recurrent_kernels()
        self._kernels = {
            getattr(torch, dtype): next(
                name
                for name, has, needed_isa, needs in table
                if has == dtype and found.get(needed_isa, vectors) >= set(needs)
            )
            for dtype in DTYPES
        }

    def fast_path(self, request: RecurrentRequest) -> NativePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        return recurrent_path(tuple(self._kernels[getattr(torch, name)] for name in DTYPES))

    def pack(
        self,
        kind: RecurrentKind,
        weights: tuple[CellWeights, ...],
        num_layers: int,
        bidirectional: bool,
    ) -> PackedCells:
        """Lay out weights once, for calls of any number of steps and sequences."""
        kernel = self._kernels[weights[0].w_ih.dtype]
        sizes = _sizes(kind, weights, num_layers, bidirectional)
        size = _native.recurrent_packed_bytes(kernel, sizes)
        data = torch.empty(size + _ALIGNMENT, dtype=torch.uint8)
        start = -(-address(data, "packed") // _ALIGNMENT) * _ALIGNMENT
        kept = [[None if w is None else w.contiguous() for w in cell] for cell in weights]
        addresses = tuple(0 if w is None else address(w, "weights") for cell in kept for w in cell)
        _native.recurrent_pack(kernel, sizes, addresses, start, torch.get_num_threads())
        biased = weights[0].b_ih is not None
        native = _native.packed_weights(kernel, sizes, data, start, biased)
        return PackedCells(kernel, sizes, data, start, native)

    def __call__(self, call: RecurrentCall) -> RecurrentResult:
        """Compute the outputs.

        Working memory is the gates of some 400 steps and sequences, two layers' outputs where there
        are several layers, and the packed weights where they do not come packed.
        """
        packed = call.packed
        if packed is None:
            packed = self.pack(call.kind, call.weights, call.num_layers, call.bidirectional)
        assert isinstance(packed, PackedCells)
        return run_kernel(call, packed, threads=torch.get_num_threads())


def run_kernel(
    call: RecurrentCall, packed: PackedCells, *, threads: int, poison: bool = False
) -> RecurrentResult:
    """Run the kernel that weights were packed for.

    Args:
        call: the call; its weights are not looked at.
        packed: the weights.
        threads: at most so many.
        poison: fill all working memory with NaN first, for tests.
    """
    steps, batch, _ = call.input.shape
    _, _, hidden_size, outputs, layers, directions, _ = packed.sizes
    given = call.input if call.input.stride(2) == 1 else call.input.contiguous()
    hidden = call.hidden.contiguous()
    cell = None if call.cell is None else call.cell.contiguous()
    output = given.new_empty((steps, batch, directions * outputs))
    hidden_out = hidden.new_empty(hidden.shape)
    cell_out = None if cell is None else cell.new_empty(cell.shape)
    reserve = None
    if call.reserve:
        columns = reserve_columns(call.kind, hidden_size, outputs)
        shape = (layers * directions, steps, batch, columns)
        reserve = given.new_empty(shape, dtype=torch.float32)
    lengths = None if call.lengths is None else call.lengths.contiguous()
    _check_packed(packed)
    read = (("hidden", hidden), ("cell", cell), ("packed", packed.data), ("lengths", lengths))
    written = (
        ("output", output),
        ("hidden_out", hidden_out),
        ("cell_out", cell_out),
        ("reserve", reserve),
    )
    addresses = [0 if t is None else address(t, name) for name, t in (*read, *written)]
    addresses[2] = packed.address
    _native.recurrent_forward(
        packed.kernel,
        packed.sizes,
        (steps, batch),
        (address(given, "input"), given.stride(0), given.stride(1)),
        tuple(addresses),
        threads,
        poison,
    )
    return RecurrentResult(output, hidden_out, cell_out, reserve)


def _check_packed(packed: PackedCells) -> None:
    """Raise where packed weights no longer lie in their tensor's memory."""
    size = _native.recurrent_packed_bytes(packed.kernel, packed.sizes)
    start = address(packed.data, "packed", size)
    if not start <= packed.address <= start + packed.data.numel() - size:
        raise ValueError(
            "packed: expected weights in the memory that they were packed into, and it was "
            "replaced; pack the weights again"
        )


def _sizes(
    kind: RecurrentKind,
    weights: tuple[CellWeights, ...],
    num_layers: int,
    bidirectional: bool,
) -> Sizes:
    """Return the sizes as _native's functions take them."""
    first = weights[0]
    return (
        _KINDS.index(kind),
        first.w_ih.shape[1],
        first.w_hh.shape[0] // gates(kind),
        first.w_hh.shape[1],
        num_layers,
        2 if bidirectional else 1,
        first.w_hr is not None,
    )


def recurrent_path(
    computing: tuple[str, ...] | tuple[Callable[..., Any], ...],
) -> NativePath | None:
    """Return a path with nothing enabled; None where native code cannot read torch's tensors.

    Args:
        computing: names of kernels, one for each of DTYPES; or torch's functions, one for each of
            RecurrentKind.
    """
    if not reads_tensors():
        return None
    return _RecurrentPath(_native.recurrent_fast_path(tuple(RecurrentKind), computing))


class _RecurrentPath(NativePath):
    __slots__ = ()

    def enable(self, request: RecurrentRequest) -> bool:
        key = _key(request)
        if key is not None:
            self._enable(key)
        return True


def _key(request: RecurrentRequest) -> tuple[int, ...] | None:
    """Return a request as native RequestKey has it; None where native code cannot compute it."""
    special = (request.ragged, request.grad, request.reserve, request.deterministic)
    if any(special) or request.dtype not in DTYPES:
        return None
    return (
        DTYPES.index(request.dtype),
        _PLACES[request.kind],
        request.steps,
        request.batch,
        request.input_size,
        request.hidden_size,
        request.proj_size or request.hidden_size,
        request.proj_size > 0,
        request.num_layers,
        2 if request.bidirectional else 1,
        request.bias,
        request.packed,
    )
