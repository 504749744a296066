"""Functions before and after a product, as the kernels call them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import Function, LinearRequest, Spread
from torchyard_programs import Input
from torchyard_triton.elementwise import ElementProgram, element_program

__all__ = ["check_functions", "function_arguments"]

_Captured = tuple[tuple[str, str], ...]


def check_functions(request: LinearRequest) -> None:
    """Raise UnsupportedProgramError where a function of a request is not computed."""
    if request.prologue:
        _program(request.prologue, ("x",), request.dtype, request.prologue_captured)
    if request.epilogue:
        inputs = ("gate", "up") if request.gated else ("y",)
        _program(request.epilogue, inputs, request.dtype, request.epilogue_captured)


def function_arguments(
    function: Function | None, x: Tensor, shape: torch.Size
) -> tuple[Any, tuple[Any, ...], torch.dtype]:
    """Return a jit function, what it takes as ``captured``, and the dtype of its result.

    It takes the inputs, rows [R, 1] and columns [1, C] of the result, and where they are inside.

    Args:
        function: as the call has it; None: the result is of x's dtype.
        x: the call's.
        shape: of what the function makes, [..., columns].
    """
    if function is None:
        return None, (), x.dtype
    spreads = tuple((name, str(spread)) for name, spread in function.spreads(shape))
    program = _program(function.text, function.inputs, str(x.dtype)[6:], spreads)
    module = program.module(_at_text(function.inputs, tuple(spread for _, spread in spreads)))
    rows, columns = math.prod(shape[:-1]), shape[-1]
    values: list[Any] = []
    for tensor in function.captured:
        # A copy only where rows of a tensor lie in no single stride.
        flat = tensor.to(x.device).expand(shape).reshape(rows, columns)
        values += [flat, *flat.stride()]
    return module.program_at, tuple(values), program.results[0]


def _program(text: str, inputs: tuple[str, ...], dtype: str, captured: _Captured) -> ElementProgram:
    given: torch.dtype = getattr(torch, dtype)
    before = inputs == ("x",)
    return element_program(
        text,
        tuple(Input(name, given, 1) for name in inputs),
        tuple((getattr(torch, name), int(spread != Spread.SCALAR)) for name, spread in captured),
        results=(given,) if before else None,
    )


def _at_text(inputs: tuple[str, ...], spreads: tuple[str, ...]) -> str:
    """Return a function that loads the captured elements of a tile and computes the program."""
    lines = [f"@triton.jit\ndef program_at({', '.join(inputs)}, rows, columns, inside, captured):"]
    names = []
    for number, spread in enumerate(spreads):
        place = 3 * number
        name = f"c{number}"
        names.append(name)
        if spread in (Spread.SCALAR, Spread.ONE):
            lines.append(f"{name} = tl.load(captured[{place}])")
        else:
            lines.append(
                f"{name} = tl.load(captured[{place}] + (rows.to(tl.int64) * captured[{place + 1}] "
                f"+ columns.to(tl.int64) * captured[{place + 2}]), mask=inside, other=0)"
            )
        # One after the other: Triton 3.3 does not join comparisons of types.
        for half in ("float16", "bfloat16"):
            lines.append(f"if {name}.dtype == tl.{half}:")
            lines.append(f"    {name} = {name}.to(tl.float32)")
        lines.append(f"if captured[{place}].dtype.element_ty == tl.int1:")
        lines.append(f"    {name} = {name} != 0")
    lines.append(f"return program0({', '.join((*inputs, *names))}, ())")
    return "\n    ".join(lines) + "\n"
