"""From a program's steps to a graph, in the dtypes of torch's promotion.

Values of bfloat16 and float16 are computed in float32 and rounded after each step, as torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from torchyard_programs._graph.graph import (
    FLOATS,
    INTEGERS,
    Graph,
    UnsupportedProgramError,
    name_of,
)
from torchyard_programs._graph.term import Term
from torchyard_programs._program.inference import Input, Traits
from torchyard_programs._program.program import Reference
from torchyard_programs._program.typed import Step, typed_program

__all__ = [
    "HANDLERS",
    "Lowering",
    "computed",
    "floating",
    "handles",
    "lacking",
    "named",
    "plain",
    "refuse",
]

Handler = Callable[["Lowering", Step], Term]
HANDLERS: Final[dict[str, Handler]] = {}

# What captured tensors may hold.
_STORED: Final = FLOATS | INTEGERS | {"bool"}
# Keywords and their values that change nothing, which torch's own functions pass on.
_DEFAULTS: Final[dict[str, Any]] = {
    "alpha": 1,
    "approximate": "none",
    "decimals": 0,
    "inplace": False,
    "rounding_mode": None,
    "memory_format": torch.preserve_format,
}


def handles(*words: str) -> Callable[[Handler], Handler]:
    """Register a function that lowers steps of some words."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(words, handler))
        return handler

    return register


def refuse(step: Step, what: str) -> UnsupportedProgramError:
    """Return the error for a step that is not computed."""
    return UnsupportedProgramError(f"{step.word} {what}")


class Lowering:
    """The making of a graph.

    Args:
        text: the program.
        inputs: its inputs.
        traits: dtype and number of dimensions of each captured tensor.
        float64_functions: names of the functions that the kernel's language has in float64.
    """

    def __init__(
        self,
        text: str,
        inputs: tuple[Input, ...],
        traits: Traits,
        float64_functions: frozenset[str] = frozenset(),
    ) -> None:
        self.program = typed_program(text, inputs, traits)
        self.float64_functions = float64_functions
        self.traits = traits
        self.graph = Graph()
        # Reference -> the term, and the dtype (or Python's type of number) that torch says it has.
        self.values: dict[str, tuple[Term, Any]] = {}
        for item in inputs:
            number = self.graph.add("input", (), name_of(item.dtype), item.name)
            self.values[item.name] = Term(self.graph, number), item.dtype

    def run(self, result_dtype: str | None) -> Graph:
        """Return the graph, whose result has a dtype; None leaves it as it is."""
        for step in self.program.steps:
            if step.word not in HANDLERS:
                raise UnsupportedProgramError(f"{step.word} is no operation of the vocabulary")
            if name_of(step.dtype) not in _STORED:
                raise refuse(step, f"gives {name_of(step.dtype)}")
            before = len(self.graph.nodes)
            value = HANDLERS[step.word](self, step).to(name_of(step.dtype))
            if lacking(self.graph, before, self.float64_functions):
                raise refuse(step, "of float64")
            self.values[step.result] = value, step.dtype
        result = self.program.result
        if isinstance(result, tuple):
            raise UnsupportedProgramError("a program with several results")
        if result_dtype is None:
            result_dtype = self.dtype_of(result)
        self.graph.result = self.term(result, result_dtype).number
        return self.graph

    def dtype_of(self, item: Any) -> str:
        """Return the dtype that holds an argument."""
        if isinstance(item, Reference):
            return name_of(self._value(item)[1])
        return name_of(type(item))

    def term(self, item: Any, dtype: str) -> Term:
        """Return an argument in a dtype."""
        if isinstance(item, bool | int | float):
            return Term(self.graph, self.graph.constant(item, dtype))
        if not isinstance(item, Reference):
            raise UnsupportedProgramError(f"takes {type(item).__name__} for a value")
        return self._value(item)[0].to(dtype)

    def common(self, *items: Any) -> str:
        """Return the dtype in which torch computes with some arguments."""
        examples = [self._example(item) for item in items]
        found = examples[0]
        for example in examples[1:]:
            found = torch.empty((), dtype=torch.result_type(found, example))
        if isinstance(found, torch.Tensor):
            return name_of(found.dtype)
        return name_of(type(found))

    def loaded(self, tensor: int, indices: tuple[Term, ...]) -> Term:
        """Return an element of a captured tensor."""
        dtype = name_of(self.traits[tensor][0])
        if dtype not in _STORED:
            raise UnsupportedProgramError(f"reads a captured tensor of {dtype}")
        numbers = tuple(index.to("int64").number for index in indices)
        return Term(self.graph, self.graph.add("load", numbers, dtype, tensor))

    def _value(self, item: Reference) -> tuple[Term, Any]:
        if item.name not in self.values:
            tensor = int(item.name[1:])
            if self.traits[tensor][1]:
                raise UnsupportedProgramError("reads a whole captured tensor")
            self.values[item.name] = self.loaded(tensor, ()), self.traits[tensor][0]
        return self.values[item.name]

    def _example(self, item: Any) -> Any:
        if not isinstance(item, Reference):
            return item
        dtype = self._value(item)[1]
        if isinstance(dtype, torch.dtype):
            return torch.empty((), dtype=dtype)
        return dtype(1)


def plain(step: Step, count: int) -> tuple[Any, ...]:
    """Return the arguments of a step that has so many, and no keyword that matters."""
    for name, value in step.kwargs:
        if name not in _DEFAULTS or value != _DEFAULTS[name]:
            raise refuse(step, f"with {name}={value!r}")
    if len(step.args) != count:
        raise refuse(step, f"with {len(step.args)} arguments")
    return step.args


def named(step: Step, *names: str, **defaults: Any) -> list[Any]:
    """Return the arguments of a step by its function's parameters, positional or by keyword."""
    given = dict(zip((*names, *defaults), step.args, strict=False))
    if len(step.args) > len(names) + len(defaults):
        raise refuse(step, f"with {len(step.args)} arguments")
    for name, value in step.kwargs:
        if name in names or name in defaults:
            given[name] = value
        elif name not in _DEFAULTS or value != _DEFAULTS[name]:
            raise refuse(step, f"with {name}={value!r}")
    missing = [name for name in names if name not in given]
    if missing:
        raise refuse(step, f"without {missing[0]}")
    return [given[name] for name in names] + [given.get(name, defaults[name]) for name in defaults]


def computed(dtype: object) -> str:
    """Return the dtype in which a step of some result is computed."""
    name = name_of(dtype)
    return "float32" if name in ("bfloat16", "float16") else name


def floating(lowering: Lowering, step: Step, item: object) -> Term:
    """Return an argument in the floating point dtype in which a step is computed."""
    if computed(step.dtype) not in FLOATS:
        raise refuse(step, f"of {computed(step.dtype)}")
    return lowering.term(item, computed(step.dtype))


def lacking(graph: Graph, first: int, float64_functions: frozenset[str]) -> str:
    """Return a function that nodes from one on call on float64 and the language lacks, or ""."""
    for node in graph.nodes[first:]:
        is_wide = any(graph.nodes[arg].dtype == "float64" for arg in node.args)
        if node.op == "call" and is_wide and node.data not in float64_functions:
            return str(node.data)
    return ""
