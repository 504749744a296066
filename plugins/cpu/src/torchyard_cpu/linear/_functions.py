"""Functions before and after a linear layer, as the native kernels take them."""

from __future__ import annotations

import math
from array import array
from typing import Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu._addresses import address
from torchyard_cpu._programs.program import (
    COLUMN,
    ELEMENTS,
    ROW,
    TILE,
    UNIFORM,
    NativeProgram,
    ProgramOperand,
    UnsupportedProgramError,
    native_program,
)
from torchyard_cpu._tensor_reader import TENSOR_DTYPES
from torchyard_kernels.linear.contract import PANEL_COLUMNS, Function, LinearRequest, Spread

__all__ = ["NativeFunction", "PathFunction", "lacking", "native_function", "path_functions"]

NativeFunction: TypeAlias = tuple[str, object, int, tuple[int, ...]]
# An encoded program, its inputs, and int64 dtype and spread of each captured tensor.
PathFunction: TypeAlias = tuple[object, int, bytes]

_SHAPES: Final = {
    Spread.SCALAR: UNIFORM,
    Spread.ONE: UNIFORM,
    Spread.ROW: ROW,
    Spread.COLUMN: COLUMN,
    Spread.TILE: TILE,
}


def lacking(request: LinearRequest) -> str:
    """Return what the request's functions need and the kernels lack; empty where they run them."""
    try:
        if request.prologue:
            _program(
                request.prologue, ("x",), request.dtype, request.prologue_captured, request.dtype
            )
        if request.epilogue:
            names = ("gate", "up") if request.gated else ("y",)
            _program(request.epilogue, names, request.dtype, request.epilogue_captured, "")
    except UnsupportedProgramError as error:
        return f"a function {error}"
    half = request.outputs // 2
    if request.gated and request.weight and half % PANEL_COLUMNS:
        return f"halves of whole panels of {PANEL_COLUMNS} outputs, and a half has {half}"
    return ""


def native_function(
    function: Function, kernel: str, x: Tensor, shape: torch.Size
) -> tuple[NativeFunction, tuple[torch.dtype, ...], list[Tensor]]:
    """Return a function for ``_native.linear_forward``, its result's dtype, and what it keeps.

    Args:
        function: as the call has it.
        kernel: the interpreter's name.
        x: the call's.
        shape: of what the function makes.
    """
    before = function.inputs == ("x",)
    name = f"{'prologue' if before else 'epilogue'}: captured tensor"
    dtype = str(x.dtype)[6:]
    program = _program(
        function.text, function.inputs, dtype, function.spreads(shape), dtype if before else ""
    )
    columns = shape[-1]
    rows = math.prod(shape[:-1])
    places: list[int] = []
    kept = []
    for tensor in function.captured:
        address(tensor, name)
        # A copy only where rows of a tensor lie in no single stride.
        flat = tensor.expand(shape).reshape(rows, columns)
        kept.append(flat)
        places += [address(flat, name), *flat.stride()]
    native = kernel, program.encoded, len(function.inputs), tuple(places)
    return native, program.results, kept


def path_functions(
    request: LinearRequest,
) -> tuple[PathFunction | None, PathFunction | None, str]:
    """Return a request's functions as native paths take them, and the output's dtype."""
    before = after = None
    result = request.dtype
    if request.prologue:
        program = _program(
            request.prologue, ("x",), request.dtype, request.prologue_captured, request.dtype
        )
        before = program.encoded, 1, _kinds(request.prologue_captured)
    if request.epilogue:
        names = ("gate", "up") if request.gated else ("y",)
        program = _program(request.epilogue, names, request.dtype, request.epilogue_captured, "")
        after = program.encoded, len(names), _kinds(request.epilogue_captured)
        result = str(program.results[0])[6:]
    return before, after, result


def _kinds(captured: tuple[tuple[str, str], ...]) -> bytes:
    spreads = list(Spread)
    return array(
        "q",
        [
            number
            for dtype, spread in captured
            for number in (TENSOR_DTYPES.index(dtype), spreads.index(Spread(spread)))
        ],
    ).tobytes()


def _program(
    text: str,
    inputs: tuple[str, ...],
    dtype: str,
    captured: tuple[tuple[str, str], ...],
    stored: str,
) -> NativeProgram:
    """Return a program; a prologue's input and result are elements, an epilogue's input floats.

    Raises:
        UnsupportedProgramError: names what the interpreters lack.
    """
    operands = [
        ProgramOperand(name, getattr(torch, dtype), stored or "float32", TILE) for name in inputs
    ]
    for index, (name, spread) in enumerate(captured):
        if name not in ELEMENTS:
            raise UnsupportedProgramError(f"reads a tensor of {name}")
        kind = Spread(spread)
        ndim = 0 if kind is Spread.SCALAR else 1
        operand = ProgramOperand(f"${index}", getattr(torch, name), name, _SHAPES[kind], ndim)
        operands.append(operand)
    found = native_program(text, tuple(operands), (stored,) if stored else None)
    if found.computed is not None:
        raise UnsupportedProgramError("computes with plain numbers alone")
    return found
