"""Programs evaluated by torch's operations, one group at a time, in a wide enough dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.pointwise.contract import NUMBERS, Operand, PointwiseCall
from torchyard_programs import (
    Input,
    Program,
    ProgramError,
    Reference,
    Traits,
    build,
    infer,
    is_pointwise,
    parse,
)

__all__ = [
    "EXACT",
    "WIDE",
    "broadcast",
    "check_results",
    "evaluated",
    "result_dtypes",
    "takes_elements",
]

_Wider = tuple[tuple[torch.dtype, torch.dtype], ...]

# What is computed instead of a dtype: as the contract says, and as its reference does.
WIDE: Final[_Wider] = ((torch.bfloat16, torch.float32), (torch.float16, torch.float32))
EXACT: Final[_Wider] = tuple(
    (dtype, torch.float64) for dtype in (torch.bfloat16, torch.float16, torch.float32)
)
_CONVERSIONS: Final = frozenset({"bfloat16", "float", "half", "to", "type_as"})


def result_dtypes(
    text: str, inputs: tuple[Operand, ...], captured: tuple[Operand, ...]
) -> tuple[torch.dtype, ...]:
    """Return the dtype of each result, as torch promotes; a number gives torch's default for it."""
    return _plan(text, inputs, captured, WIDE).results


def takes_elements(text: str, arguments: int, captured: tuple[Operand, ...]) -> bool:
    """Return whether a program takes one element of each captured tensor, and looks up none."""
    given = tuple(Input(f"x{index}", torch.float32, 1) for index in range(arguments))
    elements = tuple((getattr(torch, name), 0) for name, _ in captured)
    return is_pointwise(parse(text), given, elements)


def broadcast(items: Sequence[Any]) -> torch.Size:
    """Return the shape that the tensors among some items have together.

    Raises:
        ValueError: they do not broadcast.
    """
    shapes = [item.shape for item in items if isinstance(item, Tensor)]
    try:
        return torch.broadcast_shapes(*shapes)  # type: ignore[no-any-return,no-untyped-call]
    except RuntimeError:
        raise ValueError(
            f"foreach_map: expected the tensors of a group, and captured ones, to broadcast, got "
            f"{' and '.join(str(list(shape)) for shape in shapes)}"
        ) from None


def check_results(call: PointwiseCall) -> None:
    """Check that a call's results may be written to ``call.out``.

    Raises:
        TypeError, ValueError: one may not; names it.
    """
    request = call.request
    dtypes = result_dtypes(request.text, request.inputs, request.captured)
    for group, items in enumerate(zip(*call.inputs, strict=True)):
        shape = broadcast((*items, *call.captured))
        for result, dtype in zip(call.out, dtypes, strict=True):
            into = result[group]
            if into.shape != shape:
                raise ValueError(
                    f"out: expected tensors of the broadcast shape, in group {group} "
                    f"{list(shape)}, got {list(into.shape)}"
                )
            if into.device.type != request.device:
                raise TypeError(
                    f"out: expected tensors on {request.device}, as the arguments, got one on "
                    f"{into.device}"
                )
            if not torch.can_cast(dtype, into.dtype):
                raise TypeError(
                    f"out: a result of {str(dtype)[6:]} cannot be written to a tensor of "
                    f"{str(into.dtype)[6:]}; convert it in the function"
                )


def evaluated(
    text: str,
    inputs: tuple[Operand, ...],
    captured: tuple[Operand, ...],
    items: Sequence[Any],
    tensors: Sequence[Tensor],
    wider: _Wider = WIDE,
) -> tuple[Tensor, ...]:
    """Return a group's results: of the broadcast shape, in their dtypes. Differentiable.

    Args:
        text: the program.
        inputs, captured: what the items and the captured tensors are.
        items: a tensor or a number for each input.
        tensors: the captured tensors.
        wider: what is computed instead of some dtypes.
    """
    plan = _plan(text, inputs, captured, wider)
    widened = dict(wider)
    given = [*items, *tensors]
    values = [
        value.to(widened[value.dtype])
        if isinstance(value, Tensor) and value.dtype in widened
        else value
        for value in given
    ]
    found = plan.function(*values)
    found = found if isinstance(found, tuple) else (found,)
    shape = broadcast(given)
    device = next(value.device for value in given if isinstance(value, Tensor))
    return tuple(
        torch.as_tensor(value, device=device).to(dtype).expand(shape)
        for value, dtype in zip(found, plan.results, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A program for one kind of operands.

    Attributes:
        function: computes it on widened values, inputs first.
        results: the dtype of each result.
    """

    function: Callable[..., Any]
    results: tuple[torch.dtype, ...]


@lru_cache(maxsize=1024)
def _plan(
    text: str, inputs: tuple[Operand, ...], captured: tuple[Operand, ...], wider: _Wider
) -> _Plan:
    program = parse(text)
    given = tuple(
        Input(f"x{index}", _dtype(name, ndim), max(ndim, 0))
        for index, (name, ndim) in enumerate(inputs)
    )
    traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
    # Captured tensors broadcast with every group, so of pointwise steps each sees one element; only
    # where elements are picked by index do their dimensions matter.
    elements = tuple((dtype, 0) for dtype, _ in traits)
    if not (is_pointwise(program, given, elements) or is_pointwise(program, given, traits)):
        words = ", ".join(dict.fromkeys(operation.word for operation in program.operations))
        raise ProgramError(
            f"foreach_map: expected a function of pointwise operations, got one of {words}; call "
            f"the others outside of it"
        )
    steps = infer(program, given, traits)
    results = program.result if isinstance(program.result, tuple) else (program.result,)
    widened = dict(wider)
    # A conversion rounds; what comes after it is wide again.
    casts: dict[str, tuple[torch.dtype, ...]] = {}
    for operation in program.operations:
        value = steps[operation.result.name]
        if operation.word in _CONVERSIONS and isinstance(value, Tensor) and value.dtype in widened:
            casts[operation.result.name] = (value.dtype, widened[value.dtype])
    return _Plan(
        build(program, tuple(item.name for item in given), casts=casts),
        tuple(_result_dtype(program, result, given, traits, steps) for result in results),
    )


def _dtype(name: str, ndim: int) -> Any:
    return NUMBERS[name] if ndim < 0 else getattr(torch, name)


def _result_dtype(
    program: Program, result: Any, inputs: tuple[Input, ...], captured: Traits, steps: Any
) -> torch.dtype:
    value = result
    if isinstance(result, Reference):
        if result.name in steps:
            value = steps[result.name]
        elif result.name[0] == "$":
            return captured[int(result.name[1:])][0]
        else:
            dtype = next(item.dtype for item in inputs if item.name == result.name)
            if isinstance(dtype, torch.dtype):
                return dtype
            value = dtype(1)
    dtype_of: torch.dtype = torch.as_tensor(value).dtype
    return dtype_of
