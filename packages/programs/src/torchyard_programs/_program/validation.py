"""Checks of programs, their inputs and captured tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from torchyard import arguments
from torchyard_programs._program.program import Program, references

if TYPE_CHECKING:
    import torch

    from torchyard_programs._program.inference import Input, Traits

__all__ = ["MOST_DIMENSIONS", "check_reads", "inputs_of", "names_of", "traits_of"]

# A tensor of more dimensions is taken for a mistake.
MOST_DIMENSIONS: Final = 1024


def check_reads(of: str, program: object, inputs: tuple[str, ...], captured: int | None) -> Program:
    """Return a program, checked: all of its references are defined.

    Args:
        of: the public function's name.
        program: the argument.
        inputs: the names of the inputs.
        captured: the number of captured tensors; None: any.

    Raises:
        TypeError: not a program.
        ValueError: it reads an unknown input, a later step, or an unknown captured tensor.
    """
    found = arguments.instance(
        of, "program", program, Program, "a Program", remedy="parse() makes one of a text"
    )
    steps: set[str] = set()
    for operation in found.operations:
        _check((operation.args, operation.kwargs), of, inputs, steps, captured)
        steps.add(operation.result.name)
    _check(found.result, of, inputs, steps, captured)
    return found


def _check(
    item: Any, of: str, inputs: tuple[str, ...], steps: set[str], captured: int | None
) -> None:
    for name in (reference.name for reference in references(item)):
        if name[0] == "%":
            if name not in steps:
                raise arguments.wrong_value(
                    of, "program", "steps that read earlier ones", f"one that reads {name}"
                )
        elif name[0] == "$":
            if captured is not None and int(name[1:]) >= captured:
                raise arguments.wrong_value(
                    of, "captured", f"the tensor {name} that the program reads", f"{captured}"
                )
        elif name not in inputs:
            raise arguments.wrong_value(
                of,
                "inputs",
                f"all that the program reads, {name} among them",
                ", ".join(inputs) or "none",
            )


def names_of(of: str, value: object) -> tuple[str, ...]:
    """Return the names of inputs, checked: different identifiers."""
    return _different(of, arguments.sequence(of, "inputs", value, _identifier))


def inputs_of(of: str, value: object) -> tuple[Input, ...]:
    """Return the inputs, checked: their names differ."""
    from torchyard_programs._program.inference import Input

    def one(of: str, name: str, item: object) -> Input:
        return arguments.instance(of, name, item, Input)

    found = arguments.sequence(of, "inputs", value, one)
    _different(of, tuple([item.name for item in found]))
    return found


def traits_of(of: str, value: object) -> Traits:
    """Return dtype and number of dimensions of each captured tensor, checked."""
    return arguments.sequence(of, "captured", value, _trait)


def _identifier(of: str, name: str, value: object) -> str:
    found = arguments.text(of, name, value)
    if not found.isidentifier():
        raise arguments.wrong_value(of, name, "an identifier", repr(found))
    return found


def _trait(of: str, name: str, value: object) -> tuple[torch.dtype, int]:
    pair: tuple[object, ...] = arguments.sequence(
        of, name, value, expected="a dtype and a number of dimensions, a tuple", length=2
    )
    return (
        arguments.dtype(of, f"{name}[0]", pair[0]),
        arguments.integer(of, f"{name}[1]", pair[1], least=0, most=MOST_DIMENSIONS),
    )


def _different(of: str, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise arguments.wrong_value(
            of, "inputs", "each with another name", f"the names {', '.join(names)}"
        )
    return names
