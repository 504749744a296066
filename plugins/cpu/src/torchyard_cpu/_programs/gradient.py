"""The derivative of a score program, as more nodes of its graph.

Reverse mode over the graph, from 1 at the result: the kernels multiply by the gradient of the
modified score in the end, which is cheaper than to carry it through (of ``s + bias`` nothing is
left to compute) and lets the derivatives be computed together with the scores. The derivatives are
those that torch gives, at ties and corners too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from torchyard_cpu._programs.graph import Node, ScoreGraph, float_bits
from torchyard_cpu._programs.lowering import lower
from torchyard_programs import divides_ties

__all__ = ["DifferentiatedScore", "Site", "differentiate"]

_ONE: Final = float_bits(1.0)
_MINUS_ONE: Final = float_bits(-1.0)

# The operands' positions, and what is added to their derivatives.
_Parts = Iterator[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a captured tensor is read.

    Attributes:
        gather: the node that reads.
        weight: the node that is d result / d element.
    """

    gather: int
    weight: int


@dataclass(frozen=True, slots=True)
class DifferentiatedScore:
    """A program's graph with its derivatives.

    Attributes:
        graph: the program's nodes and more; not to be changed.
        slope: the node that is d result / d score; None where it is 0.
        sites: where tensors are read whose gradients are wanted, and which the result depends on.
    """

    graph: ScoreGraph
    slope: int | None
    sites: tuple[Site, ...]


@lru_cache(maxsize=1024)
def differentiate(
    text: str, captured: tuple[tuple[str, int], ...], wanted: tuple[bool, ...]
) -> DifferentiatedScore:
    """Return a program's graph with its derivatives.

    Args:
        text: the program.
        captured: dtype name and number of dimensions of each captured tensor.
        wanted: of each captured tensor, whether its gradient is; empty: of none.

    Raises:
        UnsupportedProgramError: names the operation or dtype that native kernels lack.
    """
    return _Differentiation(lower(text, captured), wanted or (False,) * len(captured)).run()


class _Differentiation:
    def __init__(self, program: ScoreGraph, wanted: tuple[bool, ...]) -> None:
        self.graph = program.copy()
        self.wanted = wanted
        self.zero = self.graph.constant(0.0, "float32")
        self.one = self.graph.constant(1.0, "float32")

    def run(self) -> DifferentiatedScore:
        nodes = self.graph.nodes[: self.graph.result + 1]
        depends: list[bool] = []
        for node in nodes:
            depends.append(self._is_leaf(node) or self._passes(node, depends))
        found: dict[int, int] = {}
        if depends[self.graph.result]:
            found[self.graph.result] = self.one
        for number in range(len(nodes) - 1, -1, -1):
            node = nodes[number]
            if number not in found or node.op not in _RULES:
                continue
            for position, more in _RULES[node.op](self, node, number, found[number]):
                arg = node.args[position]
                if depends[arg]:
                    found[arg] = self._add("add", found[arg], more) if arg in found else more
        leaves = {number: node for number, node in enumerate(nodes) if self._is_leaf(node)}
        slopes = [found.get(number) for number, node in leaves.items() if node.op == "input"]
        sites = tuple(
            Site(number, found[number])
            for number, node in leaves.items()
            if node.op == "gather" and number in found
        )
        return DifferentiatedScore(self.graph, slopes[0] if slopes else None, sites)

    def _is_leaf(self, node: Node) -> bool:
        if node.op == "gather":
            return node.dtype == "float32" and self.wanted[node.data]
        return node.op == "input" and node.data == "s"

    def _passes(self, node: Node, depends: list[bool]) -> bool:
        """Return whether a derivative by an operand is not 0 everywhere."""
        return (
            node.dtype == "float32" and node.op in _RULES and any(depends[arg] for arg in node.args)
        )

    def _add(self, op: str, *args: int) -> int:
        return self.graph.add(op, args, "float32")

    def _is(self, number: int, bits: int) -> bool:
        node = self.graph.nodes[number]
        return node.op == "constant" and node.dtype == "float32" and node.data == bits

    def _times(self, first: int, second: int) -> int:
        for one, other in ((first, second), (second, first)):
            if self._is(one, _ONE):
                return other
            if self._is(one, _MINUS_ONE):
                return self._minus(other)
        return self._add("mul", first, second)

    def _minus(self, number: int) -> int:
        if self._is(number, _ONE):
            return self.graph.constant(-1.0, "float32")
        return self._add("neg", number)

    def _number(self, value: float) -> int:
        return self.graph.constant(value, "float32")

    def _where(self, condition: int, yes: int, no: int) -> int:
        return self._add("where", condition, yes, no)

    def _compare(self, word: str, first: int, second: int) -> int:
        return self.graph.add(word, (first, second), "bool")

    def add(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, given
        yield 1, given

    def sub(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, given
        yield 1, self._minus(given)

    def mul(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._times(given, node.args[1])
        yield 1, self._times(given, node.args[0])

    def div(self, node: Node, number: int, given: int) -> _Parts:
        # By the reciprocal: of a divisor that all pairs share it is computed once.
        part = self._times(given, self._add("div", self.one, node.args[1]))
        yield 0, part
        yield 1, self._minus(self._times(part, number))

    def neg(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._minus(given)

    def abs(self, node: Node, number: int, given: int) -> _Parts:
        (value,) = node.args
        below = self._where(self._compare("lt", value, self.zero), self._minus(given), self.zero)
        yield 0, self._where(self._compare("lt", self.zero, value), given, below)

    def sqrt(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._times(given, self._add("div", self._number(0.5), number))

    def rsqrt(self, node: Node, number: int, given: int) -> _Parts:
        cube = self._add("mul", self._add("mul", number, number), number)
        yield 0, self._times(given, self._add("mul", cube, self._number(-0.5)))

    def exp(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._times(given, number)

    def exp2(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._times(given, self._add("mul", number, self._number(math.log(2.0))))

    def log(self, node: Node, number: int, given: int) -> _Parts:
        yield 0, self._times(given, self._add("div", self.one, node.args[0]))

    def log2(self, node: Node, number: int, given: int) -> _Parts:
        inverse = self._add("div", self._number(1.0 / math.log(2.0)), node.args[0])
        yield 0, self._times(given, inverse)

    def tanh(self, node: Node, number: int, given: int) -> _Parts:
        rest = self._add("sub", self.one, self._add("mul", number, number))
        yield 0, self._times(given, rest)

    def sigmoid(self, node: Node, number: int, given: int) -> _Parts:
        rest = self._add("sub", self.one, number)
        yield 0, self._times(given, self._add("mul", rest, number))

    def erf(self, node: Node, number: int, given: int) -> _Parts:
        (value,) = node.args
        bell = self._add("exp", self._add("neg", self._add("mul", value, value)))
        yield 0, self._times(given, self._add("mul", bell, self._number(2.0 / math.sqrt(math.pi))))

    def where(self, node: Node, number: int, given: int) -> _Parts:
        condition = node.args[0]
        yield 1, self._where(condition, given, self.zero)
        yield 2, self._where(condition, self.zero, given)

    def named(self, node: Node, number: int, given: int) -> _Parts:
        """Differentiate a function by its name, not by the operations that compute it."""
        yield 1, self._times(given, self._derivative(node.data, node.args[1]))

    def _derivative(self, word: str, value: int) -> int:
        if word == "expm1":
            return self._add("exp", value)
        assert word == "log1p", word
        return self._add("div", self.one, self._add("add", self.one, value))

    def extreme(self, node: Node, number: int, given: int) -> _Parts:
        """Differentiate min and max, which share the gradient at ties, and what became of clamp and
        relu, which do not."""
        value, other = node.args
        low, high = (value, other) if node.op == "max" else (other, value)
        if node.data == "relu":
            yield 0, self._where(self._compare("le", value, other), self.zero, given)
        elif node.data == "clamp":
            inside = "lt" if divides_ties() else "le"
            yield 0, self._where(self._compare(inside, high, low), given, self.zero)
            yield 1, self._where(self._compare("lt", low, high), given, self.zero)
        else:
            half = self._times(given, self._number(0.5))
            shared = self._where(self._compare("eq", value, other), half, given)
            yield 0, self._where(self._compare("lt", low, high), self.zero, shared)
            yield 1, self._where(self._compare("lt", high, low), self.zero, shared)


_RULES: Final[dict[str, Callable[[_Differentiation, Node, int, int], _Parts]]] = {
    "abs": _Differentiation.abs,
    "add": _Differentiation.add,
    "div": _Differentiation.div,
    "erf": _Differentiation.erf,
    "exp": _Differentiation.exp,
    "exp2": _Differentiation.exp2,
    "log": _Differentiation.log,
    "log2": _Differentiation.log2,
    "max": _Differentiation.extreme,
    "min": _Differentiation.extreme,
    "mul": _Differentiation.mul,
    "named": _Differentiation.named,
    "neg": _Differentiation.neg,
    "rsqrt": _Differentiation.rsqrt,
    "sigmoid": _Differentiation.sigmoid,
    "sqrt": _Differentiation.sqrt,
    "sub": _Differentiation.sub,
    "tanh": _Differentiation.tanh,
    "where": _Differentiation.where,
}
