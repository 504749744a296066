"""A plan as a program of torch's own interpreter: a loop in C++ that calls the dispatcher.

Nothing is compiled, and nothing rearranged: the interpreter's optimiser would take what stands at
fixed places for constants, and is off while a plan runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.graphs._record import tensors_in
from torchyard_kernels.graphs.contract import Step
from torchyard_kernels.graphs.implementations._numbers import Number, tensor_of
from torchyard_kernels.graphs.implementations._plan import Kind, Placed, Plan

__all__ = ["NotExpressibleError", "interpreted"]

_NUMBERS: Final = (bool, int, float, complex)
_TENSOR: Final = ("Tensor", "Optional[Tensor]")
_MEMORY_FORMATS: Final = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


class NotExpressibleError(Exception):
    """The interpreter has no form for a step."""


def interpreted(plan: Plan) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Return what runs a plan, and where it leaves the outputs.

    Raises:
        NotExpressibleError: names the first operator that it cannot take.
    """
    program = _Program(plan)
    for placed in plan.steps:
        program.add(placed)
    outputs = tuple(program.output(tensor) for tensor in plan.outputs)
    function = program.function()

    def replay() -> None:
        before = torch._C._get_graph_executor_optimize()
        torch._C._set_graph_executor_optimize(False)
        try:
            # Nothing here is differentiated: the plan was recorded below autograd.
            with torch._C._AutoDispatchBelowAutograd():
                function()
        finally:
            torch._C._set_graph_executor_optimize(before)

    return replay, outputs


class _Program:
    """A graph of torch._C, while it is written."""

    def __init__(self, plan: Plan) -> None:
        self._graph: Any = torch._C.Graph()
        self._fixed = plan.fixed
        # By id: the plan keeps the tensors.
        self._values: dict[int, Any] = {}
        self._constants: dict[Any, Any] = {}

    def add(self, placed: Placed) -> None:
        """Write a step."""
        step, op = placed.step, placed.op
        results = _flat(step.result)
        given = []
        outs = iter(results)
        for at, argument in enumerate(op._schema.arguments):
            if argument.is_out and placed.kind is Kind.INTO:
                given.append(self._tensor(next(outs)))
                continue
            value = argument.default_value
            if argument.name in step.kwargs:
                value = step.kwargs[argument.name]
            elif not argument.kwarg_only and at < len(step.args):
                value = step.args[at]
            if type(value) in _NUMBERS and str(argument.type) in _TENSOR:
                given.append(self._number(value, step))
                continue
            given.append(self._value(value, str(argument.type)))
        returns = op._schema.returns
        listed = len(returns) == 1 and str(returns[0].type).startswith("List")
        node = self._graph.insertNode(self._graph.create(op._schema.name, given, len(returns)))
        if listed:
            node.output().setType(torch._C.ListType(torch._C.TensorType.get()))
        if node.schema() != str(op._schema):
            raise NotExpressibleError(f"{op}: the interpreter takes it for {node.schema()}")
        if placed.kind is Kind.INTO:
            return
        values = list(node.outputs())
        if listed:
            unpack = self._graph.create("prim::ListUnpack", values, len(results))
            values = list(self._graph.insertNode(unpack).outputs())
        for tensor, value in zip(results, values, strict=True):
            if isinstance(tensor, Tensor) and id(tensor) not in self._fixed:
                self._values[id(tensor)] = value

    def output(self, tensor: Tensor) -> Tensor:
        """Return where an output lies; one that moves is copied to a place of its own."""
        if id(tensor) in self._fixed:
            return self._fixed[id(tensor)]
        kept = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        given = [self._constant(kept), self._tensor(tensor), self._constant(False)]
        self._graph.insertNode(self._graph.create("aten::copy_", given, 1))
        return kept

    def function(self) -> Callable[[], None]:
        """Return the program as a function of nothing."""
        self._graph.registerOutput(self._constant(None))
        self._graph.lint()
        made: Callable[[], None] = torch._C._create_function_from_graph("plan", self._graph)
        return made

    def _tensor(self, tensor: Tensor) -> Any:
        fixed = self._fixed.get(id(tensor))
        if fixed is not None:
            return self._constant(fixed)
        value = self._values.get(id(tensor))
        if value is None:
            raise NotExpressibleError(f"a tensor {tuple(tensor.shape)} that no step made")
        return value

    def _number(self, number: Number, step: Step) -> Any:
        """Return what stands for a number where the operator takes a tensor."""
        found = tensor_of(number, tensors_in((step.args, step.kwargs)))
        if found is None:
            raise NotExpressibleError(f"{step.op} with the number {number}")
        key = (found.dtype, repr(number))
        if key not in self._constants:
            self._constants[key] = self._graph.insertConstant(found)
        return self._constants[key]

    def _value(self, value: Any, kind: str) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, list | tuple) and "Tensor" in kind:
            return self._list(value, "Optional" in kind)
        if isinstance(value, list | tuple) and not value:
            return self._empty(kind)
        if isinstance(value, torch.memory_format):
            value = _MEMORY_FORMATS[value]
        if isinstance(value, int) and "float" in kind and not isinstance(value, bool):
            value = float(value)
        return self._constant(list(value) if isinstance(value, tuple) else value)

    def _list(self, tensors: Iterable[Tensor | None], optional: bool) -> Any:
        element: Any = torch._C.TensorType.get()
        if optional:
            element = torch._C.OptionalType(element)
        values = [self._constant(None) if t is None else self._tensor(t) for t in tensors]
        node = self._graph.insertNode(self._graph.create("prim::ListConstruct", values, 1))
        node.output().setType(torch._C.ListType(element))
        return node.output()

    def _empty(self, kind: str) -> Any:
        types: dict[str, Any] = {
            "int": torch._C.IntType,
            "float": torch._C.FloatType,
            "bool": torch._C.BoolType,
        }
        for name, found in types.items():
            if name in kind:
                node = self._graph.insertNode(self._graph.create("prim::ListConstruct", [], 1))
                node.output().setType(torch._C.ListType(found.get()))
                return node.output()
        raise NotExpressibleError(f"an empty {kind}")

    def _constant(self, value: Any) -> Any:
        key = id(value) if isinstance(value, Tensor) else (type(value), repr(value))
        if key not in self._constants:
            try:
                self._constants[key] = self._graph.insertConstant(value)
            except (TypeError, RuntimeError) as error:
                raise NotExpressibleError(f"a constant of {type(value).__name__}") from error
        return self._constants[key]


def _flat(result: Any) -> list[Any]:
    if result is None:  # of an operator that only writes
        return []
    return list(result) if isinstance(result, list | tuple) else [result]
