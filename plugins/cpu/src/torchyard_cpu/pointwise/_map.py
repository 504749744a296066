"""From a foreach_map's tensors to rectangles at addresses."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._features import features
from torchyard_cpu._programs.program import (
    TILE,
    UNIFORM,
    NativeProgram,
    ProgramOperand,
    UnsupportedProgramError,
    native_program,
)
from torchyard_cpu._tensor_reader import TENSOR_DTYPES, reads_tensors
from torchyard_cpu.pointwise._numbers import WithNumbers
from torchyard_cpu.pointwise._rectangles import Rectangle, rectangles
from torchyard_kernels.pointwise.contract import NUMBERS, Operand, PointwiseCall, PointwiseRequest

__all__ = ["NativePointwise", "lacking", "operands_of"]

_ELEMENTS: Final = {bool: "bool", int: "int64", float: "float32"}
# In the order of native Kind.
_NUMBERS: Final = ("float", "int", "bool")
# Buffers for plain numbers, by how they are stored.
_BUFFERS: Final = {"bool": "b", "int64": "q", "float32": "f"}


def lacking(request: PointwiseRequest) -> str:
    """Return what a request needs and the interpreters lack; empty where they compute it."""
    try:
        native_program(request.text, operands_of(request), request.out or None)
    except UnsupportedProgramError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def operands_of(request: PointwiseRequest) -> tuple[ProgramOperand, ...]:
    """Return what the program of a request reads.

    How a tensor broadcasts changes nothing, since it would change which steps are taken together,
    and with them the last bit.
    """
    names = [f"x{index}" for index in range(len(request.inputs))]
    names += [f"${index}" for index in range(len(request.captured))]
    given = (*request.inputs, *request.captured)
    return tuple(_operand(name, operand) for name, operand in zip(names, given, strict=True))


def _operand(name: str, operand: Operand) -> ProgramOperand:
    dtype, ndim = operand
    if ndim < 0:
        kind = NUMBERS[dtype]
        return ProgramOperand(name, kind, _ELEMENTS[kind], UNIFORM, 0)
    return ProgramOperand(name, getattr(torch, dtype), dtype, TILE if ndim else UNIFORM, ndim)


class _PointwisePath:
    """``torchyard.dispatch.KernelPath`` for one program and kind of operands.

    Args:
        request: of the calls; the number of groups may be another one.
        compute: takes a call's lists, captured tensors and what to write to.
    """

    def __init__(self, request: PointwiseRequest, compute: Callable[..., Any]) -> None:
        self._request = replace(request, groups=1)
        self.try_call = compute

    def enable(self, request: PointwiseRequest) -> bool:
        """Return whether the path computes calls that make a request."""
        return replace(request, groups=1) == self._request

    def clear(self) -> None:
        """Do nothing: every call that the path computes makes the one request."""


class NativePointwise:
    """``pointwise/1`` by the native interpreter.

    Args:
        isa: the instruction set to stay within; empty: the best that the processor has.
    """

    def __init__(self, isa: str) -> None:
        found = features(isa)
        self._kernel = _native.select_program(found)

    def fast_path(self, request: PointwiseRequest) -> _PointwisePath | None:
        """Return a path with nothing enabled; see ``torchyard.dispatch.OffersFastPath``."""
        program = native_program(request.text, operands_of(request), request.out or None)
        if not reads_tensors():
            return None
        kinds = array("q")
        for name, ndim in (*request.inputs, *request.captured):
            dtypes = _NUMBERS if ndim < 0 else TENSOR_DTYPES
            kinds.extend((dtypes.index(name), ndim))
        for kind in program.number_kinds:
            kinds.extend((_NUMBERS.index(kind.__name__), -1))
        results = request.out or tuple(str(dtype)[6:] for dtype in program.results)
        try_call, _, _ = _native.pointwise_fast_path(
            self._kernel,
            program.encoded,
            kinds.tobytes(),
            len(request.captured) + len(program.number_kinds),
            array("q", [TENSOR_DTYPES.index(name) for name in results]).tobytes(),
            bool(request.out),
        )
        if program.computed is None:
            return _PointwisePath(request, try_call)
        return _PointwisePath(request, WithNumbers(request, program.computed, try_call))

    def __call__(self, call: PointwiseCall) -> tuple[list[Tensor], ...]:
        """Compute a call; see the contract. Tensors of odd layouts are copied, one by one."""
        request = call.request
        program = native_program(request.text, operands_of(request), request.out or None)
        groups = len(call.inputs[0])
        results = call.out or tuple([] for _ in program.results)
        found: list[Rectangle] = []
        copied: list[tuple[Tensor, Tensor]] = []
        for group in range(groups):
            items = [item[group] for item in call.inputs]
            tensors = [item for item in (*items, *call.captured) if isinstance(item, Tensor)]
            if call.out:
                written = [result[group] for result in call.out]
            else:
                shape = _shape_of(tensors)
                written = [tensors[0].new_empty(shape, dtype=dtype) for dtype in program.results]
                for result, tensor in zip(results, written, strict=True):
                    result.append(tensor)  # type: ignore[attr-defined]
            found += rectangles(items, call.captured, written, copied)
        self._run(program, found)
        for into, tensor in copied:
            into.copy_(tensor)
        return tuple(list(result) for result in results)

    def _run(self, program: NativeProgram, found: Sequence[Rectangle]) -> None:
        sizes, places = array("q"), array("q")
        held: list[array[Any]] = []
        for rectangle in found:
            sizes.extend((rectangle.rows, rectangle.columns))
            for place in rectangle.operands:
                if isinstance(place, tuple):
                    places.extend(place)
                else:
                    places.extend((_held(place, _ELEMENTS[type(place)], held), 0, 0))
            for value, name in _computed(program, rectangle.items):
                places.extend((_held(value, name, held), 0, 0))
            for place in rectangle.results:
                places.extend(place)
        _native.pointwise(
            self._kernel,
            program.encoded,
            sizes.tobytes(),
            places.tobytes(),
            torch.get_num_threads(),
        )


def _shape_of(tensors: Sequence[Tensor]) -> torch.Size:
    shapes = [tensor.shape for tensor in tensors]
    return torch.broadcast_shapes(*shapes)  # type: ignore[no-any-return,no-untyped-call]


def _computed(program: NativeProgram, items: Sequence[Any]) -> Sequence[tuple[Any, str]]:
    """Return what the steps on plain numbers give, and how it is stored."""
    if program.computed is None:
        return ()
    values = program.computed(*items)
    return [(value, _ELEMENTS[type(value)]) for value in values]


def _held(value: Any, name: str, held: list[array[Any]]) -> int:
    """Return the address of a number, which is kept in ``held``."""
    buffer = array(_BUFFERS[name], [value])
    held.append(buffer)
    return buffer.buffer_info()[0]
