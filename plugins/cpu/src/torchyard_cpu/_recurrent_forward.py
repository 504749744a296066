"""From a recurrent call's tensors to the native kernel's addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu import _isa, _native
from torchyard_cpu._torch_functions import torch_functions
from torchyard_cpu.recurrent import DTYPES
from torchyard_kernels.contracts.recurrent import (
    CellWeights,
    RecurrentCall,
    RecurrentKind,
    RecurrentRequest,
    RecurrentResult,
    gates,
    reserve_columns,
)

__all__ = ["DirectRecurrent", "NativeRecurrent", "PackedCells", "run_kernel"]

_Sizes: TypeAlias = tuple[int, int, int, int, int, int, int]
_KINDS: Final = tuple(RecurrentKind)
_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class PackedCells:
    """Weights as a kernel reads them.

    Attributes:
        kernel: the kernel's name.
        sizes: the sizes that they were packed for.
        data: uint8, at least as much as the kernel asks for.
        address: where in data they begin.
        native: the same, as a direct call takes it.
    """

    kernel: str
    sizes: _Sizes
    data: Tensor
    address: int
    native: _native.PackedWeights


class DirectRecurrent:
    """Serves calls with packed weights that were decided before.

    Args:
        native: does it.
    """

    def __init__(self, native: _native.DirectRecurrent) -> None:
        self._native = native

    def admit(self, request: RecurrentRequest) -> None:
        """Serve calls that make this request from now on, if it is one with packed weights."""
        special = (request.ragged, request.grad, request.reserve, request.deterministic)
        if not request.packed or any(special) or request.dtype not in DTYPES:
            return
        self._native.admit(
            (
                DTYPES.index(request.dtype),
                _KINDS.index(request.kind),
                request.steps,
                request.batch,
                request.input_size,
                request.hidden_size,
                request.proj_size or request.hidden_size,
                request.proj_size > 0,
                request.num_layers,
                2 if request.bidirectional else 1,
                request.bias,
            )
        )

    def serve(
        self, packed: object, input: Tensor, hidden: Tensor, cell: Tensor | None
    ) -> tuple[Tensor, Any] | None:
        """Compute a call as the kernel does; None where it is not served."""
        if type(packed) is not PackedCells:
            return None
        return self._native.serve(packed.native, input, hidden, cell)


class NativeRecurrent:
    """The forward, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        features = frozenset(_native.cpu_features())
        if isa:
            features &= _isa.FEATURES[isa]
        table = _native.recurrent_kernels()
        self._kernels = {
            getattr(torch, dtype): next(
                name for name, has, _, needs in table if has == dtype and features >= set(needs)
            )
            for dtype in DTYPES
        }

    def direct(self) -> DirectRecurrent | None:
        """Return what serves decided calls without this class, and was admitted none."""
        functions = torch_functions()
        native = None if functions is None else _native.direct_recurrent(*functions)
        return None if native is None else DirectRecurrent(native)

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
        address = -(-data.data_ptr() // _ALIGNMENT) * _ALIGNMENT
        kept = [[None if w is None else w.contiguous() for w in cell] for cell in weights]
        addresses = tuple(0 if w is None else w.data_ptr() for cell in kept for w in cell)
        _native.recurrent_pack(kernel, sizes, addresses, address, torch.get_num_threads())
        biased = weights[0].b_ih is not None
        native = _native.packed_weights(kernel, sizes, address, biased)
        return PackedCells(kernel, sizes, data, address, native)

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
    read = (hidden, cell, packed.data, lengths)
    written = (output, hidden_out, cell_out, reserve)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (*read, *written)]
    addresses[2] = packed.address
    _native.recurrent_forward(
        packed.kernel,
        packed.sizes,
        (steps, batch),
        (given.data_ptr(), given.stride(0), given.stride(1)),
        tuple(addresses),
        threads,
        poison,
    )
    return RecurrentResult(output, hidden_out, cell_out, reserve)


def _sizes(
    kind: RecurrentKind,
    weights: tuple[CellWeights, ...],
    num_layers: int,
    bidirectional: bool,
) -> _Sizes:
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
