"""The fast path of recurrent layers: by a native kernel, or by torch's own layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._tensor_reader import NativePath, reads_tensors
from torchyard_cpu.recurrent import DTYPES
from torchyard_kernels.recurrent.contract import RecurrentKind, RecurrentRequest

__all__ = ["PackedCells", "Sizes", "recurrent_path"]

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
        native: the same, as a native path takes it, which finds it by this name.
    """

    kernel: str
    sizes: Sizes
    data: Tensor
    address: int
    native: _native.PackedWeights


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
            self._native.enable(key)
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
