"""From what a layer does to one row to the native module's chains."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cpu import _native
from torchyard_cpu._programs.program import (
    COLUMN,
    TILE,
    UNIFORM,
    ProgramOperand,
    UnsupportedProgramError,
    native_program,
)
from torchyard_cpu._tensor_reader import TENSOR_DTYPES, reads_tensors
from torchyard_kernels.linear.contract import Packed, Spread
from torchyard_kernels.linear.contract.chain import (
    Chain,
    Copy,
    Form,
    Place,
    Pointwise,
    Product,
    Scale,
)

__all__ = ["LINEAR", "QUANTISED", "native_chain"]

# In the order of the native ChainKind.
QUANTISED, LINEAR, _SCALE, _PROGRAM, _COPY = range(5)
_SHAPES: Final = {Spread.ONE: UNIFORM, Spread.COLUMN: COLUMN, Spread.TILE: TILE}
# The native module's limits.
_MOST_STAGES: Final = 16
_MOST_INPUTS: Final = 16
_MOST_SIZES: Final = 4


def native_chain(
    chain: Chain, programs: str, product: Callable[[Packed], tuple[Any, ...] | None]
) -> Callable[..., Tensor | None] | None:
    """Return what runs a chain; None where native code cannot.

    Args:
        chain: the stages.
        programs: the interpreter's name.
        product: of a packed weight the stage's kind, kernel and integers; None where the caller
            has no kernel for it.
    """
    fits = len(chain.stages) <= _MOST_STAGES and len(chain.inputs) <= _MOST_INPUTS
    if not fits or not reads_tensors():
        return None
    stages: list[tuple[Any, ...]] = []
    weights: list[Packed] = []
    for stage in chain.stages:
        if isinstance(stage, Product):
            found = product(stage.weight)
            if found is None:
                return None
            kind, kernel, integers = found
            places = [stage.x, stage.out, *([] if stage.bias is None else [stage.bias])]
            stages.append((kind, kernel, _places(places), integers))
            weights.append(stage.weight)
        elif isinstance(stage, Scale):
            places = [stage.squares, stage.out]
            stages.append((_SCALE, stage.columns, _places(places), stage.epsilon))
        elif isinstance(stage, Copy):
            stages.append((_COPY, stage.rows, _places([stage.x, stage.out]), stage.row_bytes))
        else:
            encoded = _encoded(stage)
            if encoded is None:
                return None
            places = [operand.place for operand in stage.operands]
            places += [place for _, place in stage.results]
            stages.append((_PROGRAM, programs, _places(places), encoded, stage.rows, stage.columns))
    tensors = b"".join(_form(form) for form in (chain.output, *chain.inputs))
    read = tuple(tensor for weight in weights for tensor in weight.tensors)
    functions = _native.chain_fast_path(tensors, chain.memory, tuple(stages), read)
    return None if functions is None else functions[0]


def _encoded(stage: Pointwise) -> Any | None:
    operands = tuple(
        ProgramOperand(
            operand.name, getattr(torch, operand.dtype), operand.dtype, _SHAPES[operand.spread]
        )
        for operand in stage.operands
    )
    try:
        program = native_program(stage.text, operands, tuple(dtype for dtype, _ in stage.results))
    except UnsupportedProgramError:
        return None
    # Numbers that are computed of other numbers are operands too, and have no place here.
    return None if program.number_kinds else program.encoded


def _places(places: Iterable[Place]) -> bytes:
    words = (
        word for place in places for word in (place.base, place.offset, place.row, place.column)
    )
    return array("q", words).tobytes()


def _form(form: Form) -> bytes:
    rest = [0] * (_MOST_SIZES - len(form.sizes))
    return array(
        "q",
        [
            TENSOR_DTYPES.index(form.dtype),
            len(form.sizes),
            *(*form.sizes, *rest),
            *(*form.strides, *rest),
        ],
    ).tobytes()
