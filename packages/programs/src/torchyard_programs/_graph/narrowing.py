"""int64 nodes whose values int32 holds, computed in int32: half the registers, faster comparisons.

By intervals of values: inputs and constants have known ones, and a node is narrow where its own
interval and those of its arguments fit. Captured tensors of int64 hold anything. Nothing is lost:
what is not proved stays int64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from torchyard_programs._graph.graph import INTEGERS, Graph, Node

__all__ = ["Interval", "narrowed"]

Interval = tuple[int, int]
_INT32: Final[Interval] = (-(2**31), 2**31 - 1)
_RANGES: Final[dict[str, Interval]] = {
    "bool": (0, 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": _INT32,
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 255),
}


def narrowed(graph: Graph, inputs: Mapping[str, Interval]) -> Graph:
    """Return an equal graph in which int64 nodes are int32 where that is proved to be the same.

    Args:
        graph: left as it is.
        inputs: least and greatest values of int64 inputs, which are then given as int32.
    """
    return _Narrowing(graph, inputs).run()


class _Narrowing:
    def __init__(self, graph: Graph, inputs: Mapping[str, Interval]) -> None:
        self.graph, self.inputs = graph, inputs
        self.result = Graph()
        # Of each old node: its number in the new graph, and the values that it may have.
        self.numbers: list[int] = []
        self.intervals: list[Interval] = []

    def run(self) -> Graph:
        for node in self.graph.nodes:
            interval = self._interval(node)
            self.intervals.append(interval)
            self.numbers.append(self._rebuilt(node, interval))
        last = self.graph.result
        # The result keeps its dtype.
        self.result.result = self.result.cast(self.numbers[last], self.graph.nodes[last].dtype)
        return self.result

    def _interval(self, node: Node) -> Interval:
        whole = _RANGES.get(node.dtype, (0, 0))
        if node.dtype not in INTEGERS:
            return whole
        if node.op == "constant":
            value = int(str(node.data))
            return value, value
        if node.op == "input":
            return self.inputs.get(str(node.data), whole)
        args = [self.intervals[arg] for arg in node.args]
        name = str(node.data) if node.op == "call" else node.op
        if name == "cast" and self.graph.nodes[node.args[0]].dtype not in _RANGES:
            return whole  # of a float
        if name not in _RULES:
            return whole
        found = _RULES[name](args)
        return found if whole[0] <= found[0] and found[1] <= whole[1] else whole

    def _rebuilt(self, node: Node, interval: Interval) -> int:
        add = self.result.add
        if node.op == "input" and node.data in self.inputs:
            return add("input", (), "int32", node.data)
        if node.op == "constant":
            narrow = node.dtype == "int64" and _fits(interval)
            return add("constant", (), "int32" if narrow else node.dtype, node.data)
        if node.op == "load":
            return add("load", tuple(self.numbers[arg] for arg in node.args), node.dtype, node.data)
        if node.op == "cast":
            if node.dtype == "int64" and _fits(interval):
                return self.result.cast(self.numbers[node.args[0]], "int32")
            return self.result.cast(self.numbers[node.args[0]], node.dtype)
        wide = [arg for arg in node.args if self.graph.nodes[arg].dtype == "int64"]
        fits = all(_fits(self.intervals[arg]) for arg in wide)
        rule = str(node.data) if node.op == "call" else node.op
        if node.dtype == "int64":
            fits = fits and _fits(interval) and rule in _RULES
        dtype = "int32" if fits else "int64"
        args = tuple(
            self.result.cast(self.numbers[arg], dtype) if arg in wide else self.numbers[arg]
            for arg in node.args
        )
        return add(node.op, args, dtype if node.dtype == "int64" else node.dtype, node.data)


def _fits(interval: Interval) -> bool:
    return _INT32[0] <= interval[0] and interval[1] <= _INT32[1]


def _products(args: list[Interval]) -> Interval:
    corners = [one * other for one in args[0] for other in args[1]]
    return min(corners), max(corners)


def _floor_quotients(args: list[Interval]) -> Interval:
    if args[1][0] <= 0 <= args[1][1]:
        bound = max(abs(args[0][0]), abs(args[0][1]))
        return -bound - 1, bound
    corners = [one // other for one in args[0] for other in args[1]]
    return min(corners), max(corners)


def _remainders(args: list[Interval]) -> Interval:
    bound = max(abs(args[1][0]), abs(args[1][1]))
    return min(0, -bound if args[1][0] < 0 else 0), bound


def _absolute(args: list[Interval]) -> Interval:
    low, high = args[0]
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _hull(args: list[Interval]) -> Interval:
    return min(args[-2][0], args[-1][0]), max(args[-2][1], args[-1][1])


def _sign_or_size(args: list[Interval]) -> Interval:
    bound = max(abs(args[0][0]), abs(args[0][1]), abs(args[1][0]), abs(args[1][1]))
    return -bound, bound


_RULES: Final[dict[str, Callable[[list[Interval]], Interval]]] = {
    "abs": _absolute,
    "add": lambda args: (args[0][0] + args[1][0], args[0][1] + args[1][1]),
    "cast": lambda args: args[0],
    "clamp_max": lambda args: (min(args[0][0], args[1][0]), min(args[0][1], args[1][1])),
    "clamp_min": lambda args: (max(args[0][0], args[1][0]), max(args[0][1], args[1][1])),
    "detach": lambda args: args[0],
    "integer_floor_divide": _floor_quotients,
    "integer_fmod": _sign_or_size,
    "integer_remainder": _remainders,
    "integer_trunc_divide": _sign_or_size,
    "maximum": lambda args: (max(args[0][0], args[1][0]), max(args[0][1], args[1][1])),
    "minimum": lambda args: (min(args[0][0], args[1][0]), min(args[0][1], args[1][1])),
    "mul": _products,
    "neg": lambda args: (-args[0][1], -args[0][0]),
    "sub": lambda args: (args[0][0] - args[1][1], args[0][1] - args[1][0]),
    "where": _hull,
}
