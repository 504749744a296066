"""From a recurrent call's tensors to the native kernel's addresses."""

from __future__ import annotations

from typing import Final

import torch

from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._features import features, features_for_arithmetic
from torchyard_cpu._tensor_reader import NativePath
from torchyard_cpu.recurrent import DTYPES, TILED
from torchyard_cpu.recurrent._fast_path import PackedCells, Sizes, recurrent_path
from torchyard_kernels.recurrent.contract import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
    gates,
    reserve_columns,
)

__all__ = ["NativeRecurrent", "run_kernel"]

_KINDS: Final = tuple(RecurrentKind)
_ALIGNMENT: Final = 64


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
