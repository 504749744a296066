"""Derivatives of a graph by reverse mode, as more nodes of it.

From 1 at the result; kernels multiply by the gradient of the result. Derivatives are those that
torch gives, at ties and corners too. Gradients of bfloat16 and float16 nodes are float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from torchyard_programs._graph.graph import FLOATS, Graph, Node
from torchyard_programs._graph.term import Term
from torchyard_programs._graph.ties import divides_ties

__all__ = ["Differentiated", "Site", "differentiate"]

# An operand's position, and what is added to its derivative.
_Parts = Iterator[tuple[int, Term]]
_Rule = Callable[[Term, Term, list[Term]], _Parts]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a captured tensor is read.

    Attributes:
        tensor: its number.
        indices: nodes of the indices, as the program has them.
        weight: the node that is d result / d element.
    """

    tensor: int
    indices: tuple[int, ...]
    weight: int


@dataclass(frozen=True, slots=True)
class Differentiated:
    """A graph with its derivatives.

    Attributes:
        graph: the program's nodes and more.
        slopes: of each input asked for, the node that is d result / d input; None where it is 0.
        sites: where wanted tensors are read, in order.
    """

    graph: Graph
    slopes: tuple[int | None, ...]
    sites: tuple[Site, ...]


def differentiate(graph: Graph, inputs: tuple[str, ...], tensors: frozenset[int]) -> Differentiated:
    """Return a graph with derivatives of its result by some inputs and captured tensors.

    Args:
        graph: the program's; not changed.
        inputs: names of floating point inputs.
        tensors: numbers of captured tensors.
    """
    graph = graph.copy()
    nodes = list(graph.nodes)

    def is_leaf(node: Node) -> bool:
        if node.dtype not in FLOATS:
            return False
        return (
            node.data in inputs
            if node.op == "input"
            else node.op == "load" and node.data in tensors
        )

    depends: list[bool] = []
    for node in nodes:
        passes = node.dtype in FLOATS and _rule(node) is not None
        depends.append(is_leaf(node) or (passes and any(depends[arg] for arg in node.args)))
    found: dict[int, Term] = {}
    if depends[graph.result]:
        dtype = _wide(nodes[graph.result].dtype)
        found[graph.result] = Term(graph, graph.constant(1.0, dtype))
    for number in sorted(graph.needed((graph.result,)), reverse=True):
        node, rule = nodes[number], _rule(nodes[number])
        if number not in found or rule is None:
            continue
        operands = [Term(graph, arg) for arg in node.args]
        for position, part in rule(found[number], Term(graph, number), operands):
            arg = node.args[position]
            if depends[arg]:
                part = part.to(_wide(nodes[arg].dtype))
                found[arg] = found[arg] + part if arg in found else part
    leaves = [(number, node) for number, node in enumerate(nodes) if is_leaf(node)]
    by_name = {node.data: found.get(number) for number, node in leaves if node.op == "input"}
    slopes = tuple(None if (term := by_name.get(name)) is None else term.number for name in inputs)
    sites = tuple(
        Site(int(str(node.data)), node.args, found[number].number)
        for number, node in leaves
        if node.op == "load" and number in found
    )
    return Differentiated(graph, slopes, sites)


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _rule(node: Node) -> _Rule | None:
    if node.op == "call":
        return _CALLS.get(str(node.data))
    return _OPERATORS.get(node.op)


def _add(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g
    yield 1, g


def _sub(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g
    yield 1, -g


def _mul(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g * args[1]
    yield 1, g * args[0]


def _div(g: Term, y: Term, args: list[Term]) -> _Parts:
    part = g / args[1]
    yield 0, part
    yield 1, -(part * y)


def _neg(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, -g


def _abs(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g * args[0].call("sign")


def _same(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g


def _where(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 1, args[0].where(g, 0.0)
    yield 2, args[0].where(0.0, g)


def _extreme(g: Term, y: Term, args: list[Term]) -> _Parts:
    """Share the gradient at ties."""
    shared = args[0].is_equal(args[1]).where(g * 0.5, g)
    yield 0, y.is_equal(args[0]).where(shared, 0.0)
    yield 1, y.is_equal(args[1]).where(shared, 0.0)


def _clamp_min(g: Term, y: Term, args: list[Term]) -> _Parts:
    inside = args[1] < args[0] if divides_ties() else args[1] <= args[0]
    yield 0, inside.where(g, 0.0)
    yield 1, (args[0] < args[1]).where(g, 0.0)


def _clamp_max(g: Term, y: Term, args: list[Term]) -> _Parts:
    inside = args[0] < args[1] if divides_ties() else args[0] <= args[1]
    yield 0, inside.where(g, 0.0)
    yield 1, (args[1] < args[0]).where(g, 0.0)


_OPERATORS: Final[dict[str, _Rule]] = {
    "abs": _abs,
    "add": _add,
    "cast": _same,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp_min,
    "div": _div,
    "maximum": _extreme,
    "minimum": _extreme,
    "mul": _mul,
    "neg": _neg,
    "sub": _sub,
    "where": _where,
}


def _by(derivative: Callable[[Term, Term], Term]) -> _Rule:
    """Return the rule of a function of one value from its derivative at x, where it gives y."""

    def rule(g: Term, y: Term, args: list[Term]) -> _Parts:
        yield 0, g * derivative(args[0], y)

    return rule


def _power(g: Term, y: Term, args: list[Term]) -> _Parts:
    base, exponent = args
    slope = exponent * base.call("power", exponent - 1.0)
    yield 0, exponent.is_equal(0.0).where(0.0, g * slope)
    flat = base.is_equal(0.0) & (exponent.like(0.0) <= exponent)
    yield 1, flat.where(0.0, g * y * base.call("log"))


def _remainder(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g
    yield 1, -(g * args[0].call("floor_divide", args[1]))


def _fmod(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g
    yield 1, -(g * (args[0] / args[1]).call("trunc"))


def _copysign(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, args[0].is_equal(0.0).where(0.0, g * (y / args[0]))


def _atan2(g: Term, y: Term, args: list[Term]) -> _Parts:
    up, right = args
    part = g / (up * up + right * right)
    yield 0, part * right
    yield 1, -(part * up)


def _hypot(g: Term, y: Term, args: list[Term]) -> _Parts:
    yield 0, g * (args[0] / y)
    yield 1, g * (args[1] / y)


def _xlogy(g: Term, y: Term, args: list[Term]) -> _Parts:
    x, other = args
    flat = x.is_equal(0.0) & (other <= 0.0)
    yield 0, flat.where(0.0, g * other.call("log"))
    yield 1, g * (x / other)


def _sinc(x: Term, y: Term) -> Term:
    angle = x * math.pi
    slope = (angle * angle.call("cos") - angle.call("sin")) / (angle * x)
    return angle.is_equal(0.0).where(0.0, slope)


_ROOT_PI: Final = math.sqrt(math.pi)
_CALLS: Final[dict[str, _Rule]] = {
    "acos": _by(lambda x, y: -((1.0 - x * x).call("rsqrt"))),
    "acosh": _by(lambda x, y: (x * x - 1.0).call("rsqrt")),
    "asin": _by(lambda x, y: (1.0 - x * x).call("rsqrt")),
    "asinh": _by(lambda x, y: (x * x + 1.0).call("rsqrt")),
    "atan": _by(lambda x, y: 1.0 / (x * x + 1.0)),
    "atan2": _atan2,
    "atanh": _by(lambda x, y: 1.0 / (1.0 - x * x)),
    "copysign": _copysign,
    "cos": _by(lambda x, y: -x.call("sin")),
    "cosh": _by(lambda x, y: x.call("sinh")),
    "digamma": _by(lambda x, y: x.call("trigamma")),
    "erf": _by(lambda x, y: (-(x * x)).call("exp") * (2.0 / _ROOT_PI)),
    "erfc": _by(lambda x, y: (-(x * x)).call("exp") * (-2.0 / _ROOT_PI)),
    "erfinv": _by(lambda x, y: (y * y).call("exp") * (0.5 * _ROOT_PI)),
    "exp": _by(lambda x, y: y),
    "exp2": _by(lambda x, y: y * math.log(2.0)),
    "expm1": _by(lambda x, y: x.call("exp")),
    "fmod": _fmod,
    "hypot": _hypot,
    "i0": _by(lambda x, y: x.call("i1")),
    "lgamma": _by(lambda x, y: x.call("digamma")),
    "log": _by(lambda x, y: 1.0 / x),
    "log1p": _by(lambda x, y: 1.0 / (x + 1.0)),
    "log2": _by(lambda x, y: 1.0 / (x * math.log(2.0))),
    "power": _power,
    "remainder": _remainder,
    "rsqrt": _by(lambda x, y: y * y * y * -0.5),
    "sigmoid": _by(lambda x, y: y * (1.0 - y)),
    "sin": _by(lambda x, y: x.call("cos")),
    "sinc": _by(_sinc),
    "sinh": _by(lambda x, y: x.call("cosh")),
    "sqrt": _by(lambda x, y: 0.5 / y),
    "tan": _by(lambda x, y: y * y + 1.0),
    "tanh": _by(lambda x, y: 1.0 - y * y),
    "xlogy": _xlogy,
}
