"""Pointwise programs as the native interpreters take them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import torch

from torchyard_cpu._programs.binding import Binding, BoundScore
from torchyard_cpu._programs.encoding import encode_roots
from torchyard_cpu._programs.graph import UnsupportedProgramError
from torchyard_cpu._programs.intervals import INT32, INT64, Interval
from torchyard_cpu._programs.pointwise_lowering import ProgramLowering
from torchyard_cpu._programs.step import COLUMN, ROW, TILE, UNIFORM
from torchyard_cpu._programs.steps import paired, read_later
from torchyard_programs import Input, Operation, Program, Reference, Step, build, typed_program

__all__ = [
    "COLUMN",
    "ELEMENTS",
    "ROW",
    "TILE",
    "UNIFORM",
    "NativeProgram",
    "ProgramOperand",
    "UnsupportedProgramError",
    "native_program",
]

# In the order of the native Element.
ELEMENTS: Final = (
    *("float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"),
)
# As the native kMaxProgramPlaces.
_MOST: Final = 64
# As an operand that holds a plain number is stored.
_NUMBERS: Final = {bool: "bool", int: "int64", float: "float32"}
_LANES: Final = {"float32": "f", "bfloat16": "f", "float16": "f", "int64": "l"}
_RANGES: Final[dict[str, Interval]] = {
    "int64": INT64,
    "int32": INT32,
    "int16": (-(2**15), 2**15 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
}

Encoded: TypeAlias = tuple[bytes, tuple[int, ...], tuple[int, ...], bytes, bytes]


@dataclass(frozen=True, slots=True)
class ProgramOperand:
    """A value that a program reads.

    Attributes:
        name: of an input, or ``$n`` of a captured tensor.
        dtype: what torch's promotion takes it for; ``bool``, ``int`` or ``float`` for a number.
        element: how it is stored, of ELEMENTS.
        shape: UNIFORM, ROW (a value per row), COLUMN (a value per column) or TILE.
        ndim: of the tensor, as torch's promotion sees it: 0, or 1 for any more.
    """

    name: str
    dtype: Any
    element: str
    shape: int = TILE
    ndim: int = 1


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program that is ready to run.

    Attributes:
        encoded: what ``_native`` takes: steps, counts, slots, operands, results.
        results: the dtype that torch gives each result.
        number_kinds: the types of what the operands after the given ones hold, each UNIFORM: plain
            numbers.
        computed: computes them, from the values of all inputs in their order; tensors among these
            are not looked at.
    """

    encoded: Encoded
    results: tuple[torch.dtype, ...]
    number_kinds: tuple[type, ...]
    computed: Callable[..., tuple[Any, ...]] | None


@lru_cache(maxsize=1024)
def native_program(
    text: str,
    operands: tuple[ProgramOperand, ...],
    results: tuple[str, ...] | None = None,
) -> NativeProgram:
    """Return a program for operands of some kinds.

    Args:
        text: the program.
        operands: of all inputs in their order, then of all captured tensors.
        results: how each result is stored, of ELEMENTS; None: in the dtype that torch gives it.

    Raises:
        UnsupportedProgramError: names the operation or dtype that the interpreters lack.
    """
    inputs = tuple(
        Input(operand.name, operand.dtype, operand.ndim)
        for operand in operands
        if operand.name[0] != "$"
    )
    captured = [operand for operand in operands if operand.name[0] == "$"]
    program = typed_program(text, inputs, tuple((item.dtype, item.ndim) for item in captured))
    lowering = ProgramLowering(program, {operand.name: operand.dtype for operand in operands})
    found = program.result if isinstance(program.result, tuple) else (program.result,)
    dtypes = tuple(_dtype_of(item, lowering, program.steps, operands) for item in found)
    stored = tuple(str(dtype)[6:] for dtype in dtypes) if results is None else results
    nodes = lowering.lowered(tuple(getattr(torch, name) for name in stored))
    shapes = {operand.name: operand for operand in operands}
    numbers = _numbers(lowering.numbers, program.result, program.steps)
    elements = [operand.element for operand in operands]
    kinds: list[type] = []
    for step in lowering.numbers:
        if step.result in numbers:
            element = _NUMBERS[step.dtype]
            shapes[step.result] = ProgramOperand(step.result, step.dtype, element, UNIFORM, 0)
            elements.append(element)
            kinds.append(step.dtype)
    if len(elements) + len(stored) > _MOST:
        raise UnsupportedProgramError(
            f"has {len(elements)} arguments and {len(stored)} results, more than {_MOST} together"
        )
    places = {name: number for number, name in enumerate(shapes)}
    binding = _ProgramBinding((), (0, 0, 0, 0), operands=shapes, places=places)
    binding.take(lowering.graph)
    ends = tuple(
        binding.lane(binding.values[node], "l") if name == "int64" else binding.values[node]
        for node, name in zip(nodes, stored, strict=True)
    )
    steps = paired(binding.steps, ends)
    encoded, codes = encode_roots(BoundScore(steps, ends[0]), ends)
    ended = array("q")
    for end, name in zip(ends, stored, strict=True):
        ended.extend((codes[end], ELEMENTS.index(name), read_later(steps, ends, end)))
    return NativeProgram(
        (
            encoded.words.tobytes(),
            encoded.counts,
            encoded.slots,
            array("q", [ELEMENTS.index(name) for name in elements]).tobytes(),
            ended.tobytes(),
        ),
        dtypes,
        tuple(kinds),
        _computing(lowering.numbers, numbers, tuple(item.name for item in inputs)),
    )


def _dtype_of(
    item: Any,
    lowering: ProgramLowering,
    steps: Sequence[Step],
    operands: Sequence[ProgramOperand],
) -> torch.dtype:
    """Return the dtype of a result."""
    if isinstance(item, Reference):
        known = {step.result: step.dtype for step in steps}
        known |= {operand.name: operand.dtype for operand in operands}
        dtype = known[item.name]
        if isinstance(dtype, torch.dtype):
            return dtype
        item = dtype(1)
    dtype_of: torch.dtype = torch.as_tensor(item).dtype
    return dtype_of


def _numbers(steps: Sequence[Step], result: Any, others: Sequence[Step]) -> tuple[str, ...]:
    """Return which steps on plain numbers are combined with tensors, or are a result."""
    own = [step.result for step in steps]
    items = list(result if isinstance(result, tuple) else (result,))
    for step in others:
        if step.result not in own:
            items += [*step.args, *(value for _, value in step.kwargs)]
    read = {item.name for item in items if isinstance(item, Reference)}
    return tuple(name for name in own if name in read)


def _computing(
    steps: Sequence[Step], numbers: tuple[str, ...], inputs: tuple[str, ...]
) -> Callable[..., tuple[Any, ...]] | None:
    if not numbers:
        return None
    operations = tuple(
        Operation(Reference(step.result), step.word, step.args, step.kwargs) for step in steps
    )
    return build(Program(operations, tuple(Reference(name) for name in numbers)), inputs)


@dataclass(slots=True)
class _ProgramBinding(Binding):
    """Steps in the making, whose inputs are loaded.

    Attributes:
        operands, places: by name.
    """

    operands: dict[str, ProgramOperand] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    def _input(self, name: str) -> int:
        operand = self.operands[name]
        element = operand.element
        return self._emit(
            f"load_{element}",
            (),
            _LANES.get(element, "i"),
            _RANGES.get(element, (0, 0)),
            shape=operand.shape,
            dimension=self.places[name],
        )
