"""A score program as a graph of typed operations, before sizes are known."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Node", "ScoreGraph", "UnsupportedProgramError"]

Number = bool | int | float


class UnsupportedProgramError(ValueError):
    """A program does something that the native kernels do not compute; the text names it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One value.

    Attributes:
        op: ``input``, ``constant``, ``gather``, ``cast``, ``detach``, an arithmetic word, or
            ``named``: its first operand, as the function ``data`` of the second, whose derivative
            is known by that name and not by the operations that compute it.
        args: numbers of the operands, lower than the node's own. Of arithmetic they have the dtype
            that is computed in.
        dtype: ``float32``, ``int64``, ``int32`` or ``bool``.
        data: an input's name, a constant's value, a captured tensor's number; of ``min`` and
            ``max`` what they stand for, where that has a derivative of its own.
    """

    op: str
    args: tuple[int, ...]
    dtype: str
    data: Any = None


@dataclass(slots=True)
class ScoreGraph:
    """Nodes, each only once, and the number of the result, which is float32."""

    nodes: list[Node] = field(default_factory=list)
    result: int = -1
    _known: dict[Node, int] = field(default_factory=dict)

    def add(self, op: str, args: tuple[int, ...], dtype: str, data: Any = None) -> int:
        """Return the number of a node, which is new unless there is one like it."""
        node = Node(op, args, dtype, data)
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def copy(self) -> ScoreGraph:
        """Return a graph that grows apart from this one."""
        return ScoreGraph(list(self.nodes), self.result, dict(self._known))

    def constant(self, value: Number, dtype: str) -> int:
        """Return a constant's number; the value is rounded to the dtype."""
        if dtype == "float32":
            # As bits: equal floats may differ in sign, and NaN equals nothing.
            return self.add("constant", (), dtype, float_bits(float(value)))
        if isinstance(value, float) and not math.isfinite(value):
            raise UnsupportedProgramError(f"converts {value} to {dtype}")
        return self.add("constant", (), dtype, bool(value) if dtype == "bool" else int(value))

    def cast(self, value: int, dtype: str) -> int:
        """Return a value in another dtype."""
        node = self.nodes[value]
        if node.dtype == dtype:
            return value
        if node.op == "constant" and node.dtype != "float32":
            return self.constant(node.data, dtype)
        return self.add("cast", (value,), dtype)


_FLOAT: Final = ctypes.c_float
_BITS: Final = ctypes.c_int32


def float_bits(value: float) -> int:
    """Return the bits of a number rounded to float32, as a signed integer."""
    return _BITS.from_buffer(_FLOAT(value)).value
