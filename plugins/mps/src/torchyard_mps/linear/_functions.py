"""Functions before and after a product, in Metal."""

from __future__ import annotations

from typing import Final

import torch

from torchyard_kernels.linear.contract import LinearRequest
from torchyard_mps.lowering import LoweredProgram, lower
from torchyard_programs import Input, UnsupportedProgramError

__all__ = ["called", "lacking_of_functions", "lowered_function"]

_HALVES: Final = (torch.float16, torch.bfloat16)


def lacking_of_functions(request: LinearRequest) -> str:
    """Return what a request's functions need and the kernel lacks; empty where it has all."""
    after = ("gate", "up") if request.gated else ("y",)
    for name, text, inputs, captured in (
        ("prologue", request.prologue, ("x",), request.prologue_captured),
        ("epilogue", request.epilogue, after, request.epilogue_captured),
    ):
        if captured:
            return f"{name}: expected a function that captures no tensors, got {len(captured)}"
        try:
            if text:
                lowered_function(name, text, inputs, torch.float32)
        except UnsupportedProgramError as error:
            return f"{name}: {error}, which the kernel does not compute"
    return ""


def lowered_function(
    name: str, text: str, inputs: tuple[str, ...], result: torch.dtype
) -> LoweredProgram:
    """Return a function of float32 elements as Metal source; it captures nothing.

    Args:
        name: of the function.
        text: its program.
        inputs: what the program calls its inputs.
        result: dtype of what it returns; halves are returned as float32, and rounded by who calls.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    given = tuple(Input(of, torch.float32, 1) for of in inputs)
    dtype = torch.float32 if result in _HALVES else result
    return lower(text, given, (), name=name, result=str(dtype).removeprefix("torch."))


def called(program: LoweredProgram, inputs: tuple[str, ...]) -> str:
    """Return a call of a function in the kernel, which has no layout of captured tensors."""
    return f"{program.name}({', '.join((*inputs, 'sizes'))})"
