"""Recurrent calls that were decided before: to a native kernel, or to torch's own layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._torch_functions import torch_functions
from torchyard_cpu.recurrent import DTYPES
from torchyard_kernels.contracts.recurrent import RecurrentKind, RecurrentRequest

__all__ = ["DirectLayers", "DirectRecurrent", "PackedCells", "Sizes", "native_direct"]

Sizes: TypeAlias = tuple[int, int, int, int, int, int, int]
# Whatever serves a call returns its output, and its state.
_Served: TypeAlias = tuple[Tensor, Any] | None
_PLACES: Final = {kind: place for place, kind in enumerate(RecurrentKind)}


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
    sizes: Sizes
    data: Tensor
    address: int
    native: _native.PackedWeights


def native_direct(kernels: tuple[str, ...]) -> _native.DirectRecurrent | None:
    """Return what sees calls without Python's help; None where torch lacks what it needs.

    Args:
        kernels: names, one for each of DTYPES; or none, and it computes nothing.
    """
    functions = torch_functions()
    return None if functions is None else _native.direct_recurrent(kernels, *functions)


def _admit(native: _native.DirectRecurrent, request: RecurrentRequest) -> None:
    special = (request.ragged, request.grad, request.reserve, request.deterministic)
    if any(special) or request.dtype not in DTYPES:
        return
    native.admit(
        (
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
    )


class DirectRecurrent:
    """Serves calls that were decided before with a native kernel.

    Args:
        native: does it.
    """

    def __init__(self, native: _native.DirectRecurrent) -> None:
        self._native = native

    def admit(self, request: RecurrentRequest) -> None:
        """Serve calls that make this request from now on, if it is one that may be."""
        _admit(self._native, request)

    def serve(
        self,
        kind: RecurrentKind,
        weights: Sequence[Tensor],
        packed: bool,
        made: object,
        input: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        num_layers: int,
        bidirectional: bool,
    ) -> _Served:
        """Compute a call as the kernel does; None where it is not served."""
        if not packed:
            directions = 2 if bidirectional else 1
            return self._native.serve_plain(
                _PLACES[kind], weights, input, hidden, cell, num_layers, directions
            )
        if type(made) is not PackedCells:
            return None
        return self._native.serve_packed(made.native, input, hidden, cell)


class DirectLayers:
    """Serves calls that were decided before with torch's own layers.

    Args:
        native: sees which calls those are.
        functions: torch's, by kind.
    """

    def __init__(
        self,
        native: _native.DirectRecurrent,
        functions: dict[RecurrentKind, Callable[..., Any]],
    ) -> None:
        self._native = native
        self._functions = functions

    def admit(self, request: RecurrentRequest) -> None:
        """Serve calls that make this request from now on, if it is one that may be."""
        _admit(self._native, request)

    def serve(
        self,
        kind: RecurrentKind,
        weights: Sequence[Tensor],
        packed: bool,
        made: object,
        input: Tensor,
        hidden: Tensor,
        cell: Tensor | None,
        num_layers: int,
        bidirectional: bool,
    ) -> _Served:
        """Compute a call as torch does; None where it is not served."""
        biased = self._native.knows(
            _PLACES[kind],
            weights,
            input,
            hidden,
            cell,
            num_layers,
            2 if bidirectional else 1,
            packed,
        )
        if biased is None:
            return None
        run = self._functions[kind]
        if cell is None:
            output, state = run(
                input, hidden, weights, biased, num_layers, 0.0, False, bidirectional, False
            )
            return output, state
        output, hidden, cell = run(
            input, (hidden, cell), weights, biased, num_layers, 0.0, False, bidirectional, False
        )
        return output, (hidden, cell)
