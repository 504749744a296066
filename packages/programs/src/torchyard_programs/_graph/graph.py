"""A lowered program as a graph of typed operations on single elements."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch

__all__ = [
    "FLOATS",
    "INFIX",
    "INTEGERS",
    "Graph",
    "Node",
    "UnsupportedProgramError",
    "name_of",
]

FLOATS: Final = frozenset({"bfloat16", "float16", "float32", "float64"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8"})

# Operations on floating point numbers that round nothing, or in one way alone.
_EXACT: Final = frozenset(
    {"abs", "cast", "clamp_max", "clamp_min", "constant", "detach", "load", "maximum", "minimum"}
    | {"neg", "where"}
)

# Nodes of two arguments, as Python and the languages of C's family write them.
INFIX: Final = MappingProxyType(
    {
        "add": "+",
        "and": "&",
        "div": "/",
        "eq": "==",
        "le": "<=",
        "lt": "<",
        "mul": "*",
        "ne": "!=",
        "or": "|",
        "shl": "<<",
        "shr": ">>",
        "sub": "-",
        "xor": "^",
    }
)


class UnsupportedProgramError(NotImplementedError):
    """A program has an operation, a dtype or an argument that kernels do not compute."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        op: ``input``, ``constant``, ``load``, ``cast``, ``where``, ``call`` or an operator such as
            ``add``.
        args: numbers of earlier nodes.
        dtype: of the result, by torch's name.
        data: an input's name, a constant's text, a captured tensor's number or a function's name.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    data: Hashable = None


class Graph:
    """Nodes in an order in which each follows its arguments; equal nodes are one.

    Attributes:
        nodes: the nodes; a node's number is its place.
        result: the number of the node that the program returns.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.result = -1
        self._numbers: dict[Node, int] = {}

    def copy(self) -> Graph:
        """Return a graph to which nodes can be added without changing this one."""
        other = Graph()
        other.nodes, other.result = list(self.nodes), self.result
        other._numbers = dict(self._numbers)
        return other

    def add(self, op: str, args: tuple[int, ...], dtype: str, data: Hashable = None) -> int:
        """Return the number of a node, which is added where there is no equal one."""
        node = Node(op, args, dtype, data)
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        return self._numbers[node]

    def constant(self, value: bool | float, dtype: str) -> int:
        """Return a number as a node. Its text is its key: NaN is not equal to itself."""
        if dtype == "bool":
            return self.add("constant", (), dtype, repr(bool(value)))
        return self.add(
            "constant", (), dtype, repr(float(value) if dtype in FLOATS else int(value))
        )

    def cast(self, number: int, dtype: str) -> int:
        """Return a node in another dtype, as ``Tensor.to`` converts."""
        node = self.nodes[number]
        if node.dtype == dtype:
            return number
        if node.op == "constant":
            return self.constant(_value(node), dtype)
        if dtype == "bool":
            return self.add("ne", (number, self.constant(0, node.dtype)), "bool")
        return self.add("cast", (number,), dtype)

    def is_constant(self, number: int, value: float) -> bool:
        """Return whether a node is this number."""
        node = self.nodes[number]
        return node.op == "constant" and _value(node) == value

    def needed(self, results: tuple[int, ...]) -> list[int]:
        """Return the nodes that some results depend on, in order."""
        found, stack = set(results), list(results)
        while stack:
            for arg in self.nodes[stack.pop()].args:
                if arg not in found:
                    found.add(arg)
                    stack.append(arg)
        return sorted(found)

    def rounded(self) -> Node | None:
        """Return the first node of the result's that a compiler may round in another way."""
        nodes = (self.nodes[number] for number in self.needed((self.result,)))
        return next((n for n in nodes if n.dtype in FLOATS and n.op not in _EXACT), None)


def _value(node: Node) -> bool | int | float:
    text = str(node.data)
    if node.dtype == "bool":
        return text == "True"
    return float(text) if node.dtype in FLOATS else int(text)


def name_of(dtype: object) -> str:
    """Return the name of the dtype that holds values of a torch dtype or of Python's numbers."""
    if isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    return {bool: "bool", int: "int64", float: "float64"}[dtype]  # type: ignore[index]
