"""Conversion of programs to Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchyard import arguments
from torchyard_programs._program.functions import call_of, gather
from torchyard_programs._program.program import Program, Reference
from torchyard_programs._program.validation import check_reads, names_of

__all__ = ["build"]


def build(
    program: Program,
    inputs: tuple[str, ...],
    *,
    casts: Mapping[str, tuple[torch.dtype, ...]] | None = None,
    vmapped: bool = False,
) -> Callable[..., Any]:
    """Return a program as a Python function, which a call need not interpret and Dynamo can trace.

    The function's source contains only words of the vocabulary, names of inputs, and constants.

    Args:
        program: the steps.
        inputs: the inputs' names, in the order of the function's first parameters. The captured
            tensors follow; tensors beyond those that the program reads are ignored.
        casts: step -> the dtypes to which its result is converted, in that order.
        vmapped: whether tensors are indexed in a form that torch.vmap supports.

    Raises:
        ProgramError: a step is not a function of torch.
        TypeError, ValueError: an argument does not fit the program; the message names it.
    """
    inputs = names_of("build", inputs)
    program = check_reads("build", program, inputs, None)
    casts = {} if casts is None else _casts(program, casts)
    vmapped = arguments.boolean("build", "vmapped", vmapped)
    names: dict[str, Any] = {}
    constants: list[Any] = []

    def spell(item: Any) -> str:
        if isinstance(item, Reference):
            # The user chooses the inputs' names: a prefix keeps them apart from other names.
            return {"%": "v", "$": "c"}.get(item.name[0], "i_" + item.name[0]) + item.name[1:]
        if isinstance(item, tuple):
            return "(" + "".join(f"{spell(part)}, " for part in item) + ")"
        constants.append(item)
        names[f"k{len(constants)}"] = item
        return f"k{len(constants)}"

    lines = []
    for index, operation in enumerate(program.operations):
        function, args = call_of(operation)
        called = f"f{index}"
        names[called] = gather if operation.word == "getitem" and vmapped else function
        given = [spell(arg) for arg in args]
        given += [f"{name}={spell(value)}" for name, value in operation.kwargs]
        target = spell(operation.result)
        lines.append(f"    {target} = {called}({', '.join(given)})")
        for dtype in casts.get(operation.result.name, ()):
            lines.append(f"    {target} = {target}.to({spell(dtype)})")
    parameters = [spell(Reference(name)) for name in inputs]
    parameters += [f"c{index}" for index in range(_captured_count(program))]
    header = f"def program({', '.join([*parameters, '*unused'])}):"
    source = "\n".join([header, *lines, f"    return {spell(program.result)}"])
    exec(compile(source, "<torchyard program>", "exec"), names)
    return names["program"]  # type: ignore[no-any-return]


def _casts(program: Program, value: object) -> dict[str, tuple[torch.dtype, ...]]:
    """Return the dtypes to which each step's result is converted."""
    given = arguments.mapping("build", "casts", value, "a mapping from steps to tuples of dtypes")
    steps = {operation.result.name for operation in program.operations}
    for name in given:
        if name not in steps:
            raise arguments.wrong_value("build", "casts", "steps of the program", repr(name))
    return {
        name: arguments.sequence("build", f"casts[{name!r}]", dtypes, arguments.dtype)
        for name, dtypes in given.items()
    }


def _captured_count(program: Program) -> int:
    count = 0

    def visit(item: Any) -> None:
        nonlocal count
        if isinstance(item, Reference) and item.name[0] == "$":
            count = max(count, int(item.name[1:]) + 1)
        elif isinstance(item, tuple):
            for part in item:
                visit(part)

    for operation in program.operations:
        visit((operation.args, operation.kwargs))
    visit(program.result)
    return count
