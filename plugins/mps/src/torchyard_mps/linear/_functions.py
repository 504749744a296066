"""Functions before and after a product, in Metal, and the tensors that they captured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard_kernels.linear.contract import LinearCall, LinearRequest, Spread
from torchyard_mps._launch import or_one
from torchyard_mps.lowering import LoweredProgram, lower, type_of_dtype
from torchyard_programs import Input, UnsupportedProgramError, element_programs

__all__ = ["Functions", "functions_of", "lacking_of_functions"]

_HALVES: Final = (torch.float16, torch.bfloat16)
# The first buffer of captured tensors, and how many the 31 buffers of Metal leave for them.
_FIRST: Final = 7
_MOST: Final = 24
# Where the strides of the first are in ``sizes``, as in linear.metal.
_STRIDES: Final = 11


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """The functions of a call.

    Attributes:
        sources: their texts in Metal.
        before, after: calls of them, for an element at (row, column).
        captured: what they captured, by buffer.
        strides: of rows and of columns of each.
    """

    sources: tuple[str, ...]
    before: str
    after: str
    captured: tuple[Tensor, ...]
    strides: tuple[int, ...]

    @property
    def buffers(self) -> list[tuple[str, str, int]]:
        """Type, name and index of the buffer of each captured tensor."""
        return [
            (f"device const {type_of_dtype(tensor.dtype)}*", f"captured{place}", _FIRST + place)
            for place, tensor in enumerate(self.captured)
        ]


def functions_of(call: LinearCall, dtype: torch.dtype) -> Functions:
    """Return the functions of a call whose result has a dtype.

    Raises:
        UnsupportedProgramError: names what is not computed.
        ValueError: they captured more tensors than Metal has buffers for.
    """
    sources: list[str] = []
    captured: list[Tensor] = []
    strides: list[int] = []
    calls = {"prologue": "x", "epilogue": "y"}
    for name, function, shape, result in (
        ("prologue", call.prologue, call.x.shape, torch.float32),
        ("epilogue", call.epilogue, call.result_shape(), dtype),
    ):
        if function is None:
            continue
        traits = tuple((of, str(spread)) for of, spread in function.spreads(shape))
        program = _lowered(name, function.text, function.inputs, call.x.dtype, traits, result)
        sources.append(program.source)
        elements = []
        for tensor, (kind, _) in zip(function.captured, traits, strict=True):
            flat = _by_row(tensor.to(call.x.device), shape)
            elements.append(_element(kind, len(captured)))
            captured.append(or_one(flat))
            strides += flat.stride()
        calls[name] = f"{name}({', '.join((*function.inputs, *elements, 'sizes'))})"
    lacking = _lacking_of_count(len(captured))
    if lacking:
        raise ValueError(f"multiply: {lacking}")
    return Functions(
        *(tuple(sources), calls["prologue"], calls["epilogue"]), tuple(captured), tuple(strides)
    )


def lacking_of_functions(request: LinearRequest) -> str:
    """Return what a request's functions need and the kernel lacks; empty where it has all."""
    after = ("gate", "up") if request.gated else ("y",)
    for name, text, inputs, captured in (
        ("prologue", request.prologue, ("x",), request.prologue_captured),
        ("epilogue", request.epilogue, after, request.epilogue_captured),
    ):
        try:
            if text:
                dtype = getattr(torch, request.dtype)
                _lowered(name, text, inputs, dtype, captured, torch.float32)
        except UnsupportedProgramError as error:
            return f"{name}: {error}, which the kernel does not compute"
    return _lacking_of_count(len(request.prologue_captured) + len(request.epilogue_captured))


def _lacking_of_count(count: int) -> str:
    if count <= _MOST:
        return ""
    return (
        f"functions: expected at most {_MOST} captured tensors, got {count}: Metal has 31 buffers"
    )


def _lowered(
    name: str,
    text: str,
    inputs: tuple[str, ...],
    given: torch.dtype,
    captured: tuple[tuple[str, str], ...],
    result: torch.dtype,
) -> LoweredProgram:
    """Return a function of elements of the inputs, then of captured tensors, as Metal source.

    Args:
        name: of the function.
        text: its program.
        inputs: what the program calls its inputs.
        given: their dtype, as torch's promotion sees it; halves are taken as float32.
        captured: dtype and spread of each captured tensor.
        result: dtype of what it returns; halves are returned as float32, and rounded by who calls.

    Raises:
        UnsupportedProgramError: names what is not computed.
    """
    found = element_programs(
        text,
        tuple(Input(of, given, 1) for of in inputs),
        tuple((getattr(torch, of), int(spread != Spread.SCALAR)) for of, spread in captured),
        elements=True,
    )
    dtype = torch.float32 if result in _HALVES else result
    (one,) = found.texts
    return lower(one, found.inputs, found.captured, name=name, result=str(dtype)[6:])


def _by_row(tensor: Tensor, shape: torch.Size) -> Tensor:
    """Return a captured tensor as [rows, columns] of a shape, by strides of 0 where it broadcasts.

    It is a copy only where no single stride leads from row to row.
    """
    return tensor.expand(shape).reshape(math.prod(shape[:-1]), shape[-1])


def _element(dtype: str, place: int) -> str:
    row, column = (f"sizes[{_STRIDES + 2 * place + dimension}]" for dimension in range(2))
    element = f"captured.captured{place}[row * {row} + column * {column}]"
    return f"float({element})" if getattr(torch, dtype) in _HALVES else element
