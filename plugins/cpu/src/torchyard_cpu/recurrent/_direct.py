"""Recurrent calls that were decided before: to a native kernel, or to torch's own layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._torch_functions import torch_functions
from torchyard_cpu.recurrent import DTYPES
from torchyard_kernels.recurrent.contract import RecurrentKind, RecurrentRequest

__all__ = ["DirectRecurrent", "PackedCells", "Sizes", "direct_call"]

Sizes: TypeAlias = tuple[int, int, int, int, int, int, int]
_PLACES: Final = {kind: place for place, kind in enumerate(RecurrentKind)}


@dataclass(frozen=True, slots=True, eq=False)
class PackedCells:
    """Weights as a kernel reads them.

    Attributes:
        kernel: the kernel's name.
        sizes: the sizes that they were packed for.
        data: uint8, at least as much as the kernel asks for.
        address: where in data they begin.
        native: the same, as a direct call takes it, which finds it by this name.
    """

    kernel: str
    sizes: Sizes
    data: Tensor
    address: int
    native: _native.PackedWeights


def direct_call(serves: tuple[str, ...] | tuple[Callable[..., Any], ...]) -> DirectRecurrent | None:
    """Return what serves decided calls, and was admitted none.

    None where torch lacks what it needs.

    Args:
        serves: names of kernels, one for each of DTYPES; or torch's functions, one for each of
            RecurrentKind.
    """
    functions = torch_functions()
    if functions is None:
        return None
    native = _native.direct_recurrent(tuple(RecurrentKind), serves, *functions)
    return None if native is None else DirectRecurrent(native)


class DirectRecurrent:
    """``torchyard.dispatch.KernelPath`` by the native module."""

    try_call: Callable[..., tuple[Tensor, ...] | None]

    def __init__(self, native: _native.DirectRecurrent) -> None:
        self._native = native
        self.try_call = native.serve

    def enable(self, request: RecurrentRequest) -> bool:
        """Compute calls that make this request from now on, where native code alone can."""
        special = (request.ragged, request.grad, request.reserve, request.deterministic)
        if any(special) or request.dtype not in DTYPES:
            return True
        self._native.admit(
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
        return True
