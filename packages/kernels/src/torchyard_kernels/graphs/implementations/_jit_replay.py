"""Replay of a plan by the TorchScript interpreter: a loop in C++ that calls the dispatcher.

Nothing is compiled or reordered. The interpreter's optimiser is off while a plan runs: it would
treat tensors at fixed places as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.torch_compat import below_autograd
from torchyard_kernels._torch_compat import jit, without_graph_optimization
from torchyard_kernels.graphs._record import tensors_in
from torchyard_kernels.graphs.contract import Step
from torchyard_kernels.graphs.implementations._numbers import Number, tensor_of
from torchyard_kernels.graphs.implementations._plan import Kind, Placed, Plan

__all__ = ["NotExpressibleError", "jit_replay"]

_NUMBERS: Final = (bool, int, float, complex)
_TENSOR: Final = ("Tensor", "Optional[Tensor]")
_MEMORY_FORMATS: Final = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


class NotExpressibleError(Exception):
    """A TorchScript graph cannot express a step."""


def jit_replay(plan: Plan) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
    """Return a function that runs a plan, and the tensors that hold its outputs after each run.

    Raises:
        NotExpressibleError: names the first operator that cannot be expressed.
    """
    program = _Program(plan)
    for placed in plan.steps:
        program.add(placed)
    outputs = tuple(program.output(tensor) for tensor in plan.outputs)
    function = program.function()

    def replay() -> None:
        # The plan was recorded below autograd.
        with without_graph_optimization(), below_autograd():
            function()

    return replay, outputs


class _Program:
    """A TorchScript graph under construction."""

    def __init__(self, plan: Plan) -> None:
        self._graph: Any = jit.Graph()
        self._fixed = plan.fixed
        # By id of a recorded tensor; the plan owns these tensors.
        self._values: dict[int, Any] = {}
        self._constants: dict[Any, Any] = {}

    def add(self, placed: Placed) -> None:
        """Append a step."""
        step, op = placed.step, placed.op
        results = _flat(step.result)
        inputs = []
        outs = iter(results)
        for at, argument in enumerate(op._schema.arguments):
            if argument.is_out and placed.kind is Kind.OUT:
                inputs.append(self._tensor(next(outs)))
                continue
            value = argument.default_value
            if argument.name in step.kwargs:
                value = step.kwargs[argument.name]
            elif not argument.kwarg_only and at < len(step.args):
                value = step.args[at]
            if type(value) in _NUMBERS and str(argument.type) in _TENSOR:
                inputs.append(self._number(value, step))
                continue
            inputs.append(self._value(value, str(argument.type)))
        returns = op._schema.returns
        listed = len(returns) == 1 and str(returns[0].type).startswith("List")
        node = self._graph.insertNode(self._graph.create(op._schema.name, inputs, len(returns)))
        if listed:
            node.output().setType(jit.ListType(jit.TensorType.get()))
        if node.schema() != str(op._schema):
            raise NotExpressibleError(f"{op}: the interpreter resolves it to {node.schema()}")
        if placed.kind is Kind.OUT:
            return
        values = list(node.outputs())
        if listed:
            unpack = self._graph.create("prim::ListUnpack", values, len(results))
            values = list(self._graph.insertNode(unpack).outputs())
        for tensor, value in zip(results, values, strict=True):
            if isinstance(tensor, Tensor) and id(tensor) not in self._fixed:
                self._values[id(tensor)] = value

    def output(self, tensor: Tensor) -> Tensor:
        """Return the tensor that holds an output; a temporary one is copied into a new tensor."""
        if id(tensor) in self._fixed:
            return self._fixed[id(tensor)]
        output = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
        inputs = [self._constant(output), self._tensor(tensor), self._constant(False)]
        self._graph.insertNode(self._graph.create("aten::copy_", inputs, 1))
        return output

    def function(self) -> Callable[[], None]:
        """Return the graph as a function without arguments."""
        self._graph.registerOutput(self._constant(None))
        self._graph.lint()
        function: Callable[[], None] = jit._create_function_from_graph("plan", self._graph)
        return function

    def _tensor(self, tensor: Tensor) -> Any:
        fixed = self._fixed.get(id(tensor))
        if fixed is not None:
            return self._constant(fixed)
        value = self._values.get(id(tensor))
        if value is None:
            raise NotExpressibleError(f"a tensor {tuple(tensor.shape)} that no step produced")
        return value

    def _number(self, number: Number, step: Step) -> Any:
        """Return the tensor constant for a number passed where the operator takes a tensor."""
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
        element: Any = jit.TensorType.get()
        if optional:
            element = jit.OptionalType(element)
        values = [self._constant(None) if t is None else self._tensor(t) for t in tensors]
        node = self._graph.insertNode(self._graph.create("prim::ListConstruct", values, 1))
        node.output().setType(jit.ListType(element))
        return node.output()

    def _empty(self, kind: str) -> Any:
        types: dict[str, Any] = {
            "int": jit.IntType,
            "float": jit.FloatType,
            "bool": jit.BoolType,
        }
        for name, found in types.items():
            if name in kind:
                node = self._graph.insertNode(self._graph.create("prim::ListConstruct", [], 1))
                node.output().setType(jit.ListType(found.get()))
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
    if result is None:  # an operator that only writes to its arguments
        return []
    return list(result) if isinstance(result, list | tuple) else [result]
