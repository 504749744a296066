"""Functions before and after a linear layer, as the native kernels take them."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import torch
from torch import Tensor

from torchyard_cpu._programs import (
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
from torchyard_kernels.contracts.linear import PANEL_COLUMNS, Function, LinearRequest, Spread

__all__ = ["NativeFunction", "lacking", "native_function"]

NativeFunction: TypeAlias = tuple[str, object, int, tuple[int, ...]]

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
    dtype = str(x.dtype)[6:]
    program = _program(
        function.text, function.inputs, dtype, function.spreads(shape), dtype if before else ""
    )
    columns = shape[-1]
    rows = math.prod(shape[:-1])
    places: list[int] = []
    kept = []
    for tensor in function.captured:
        # A copy only where rows of a tensor lie in no single stride.
        flat = tensor.expand(shape).reshape(rows, columns)
        kept.append(flat)
        places += [flat.data_ptr(), *flat.stride()]
    native = kernel, program.encoded, len(function.inputs), tuple(places)
    return native, program.results, kept


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
