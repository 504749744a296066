"""From a graph to steps of the native kernels, for known sizes.

Integers are int32 lanes where their ranges prove that nothing is lost, int64 lanes elsewhere. The
offset of a captured element that is affine in the key becomes a load of consecutive elements, any
other a gather. Indices that are not proved to be in range are checked pair by pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from torchyard_cpu._programs.graph import Node, ScoreGraph, float_bits
from torchyard_cpu._programs.intervals import (
    INT32,
    INT64,
    Interval,
    fits_int32,
    interval_of,
)
from torchyard_cpu._programs.step import COLUMN, RAW, ROW, TILE, UNIFORM, Step

__all__ = ["Binding", "BoundScore", "CapturedShape", "bind"]

_RANGES: Final[dict[str, Interval]] = {
    "bool": (0, 1),
    "uint8": (0, 255),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": INT32,
    "narrow": INT32,
    "int64": INT64,
}
# Integers below this are floats without rounding.
_EXACT: Final = 2**24
_TRUTH: Final[Interval] = (0, 0)


@dataclass(frozen=True, slots=True)
class CapturedShape:
    """What binding needs to know of a captured tensor.

    Attributes:
        dtype: its name; ``narrow`` for int64 whose elements int32 holds.
        sizes, strides: by dimension; strides in elements.
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundScore:
    """Steps in an order in which each comes after what it uses, and the result's number."""

    steps: tuple[Step, ...]
    result: int


def bind(
    graph: ScoreGraph, captured: Sequence[CapturedShape], sizes: tuple[int, int, int, int]
) -> BoundScore:
    """Choose native steps.

    Args:
        graph: the program.
        captured: its captured tensors.
        sizes: B, Hq, Sq, Sk.

    Raises:
        IndexError: a captured tensor that is indexed has no element.
    """
    binding = Binding(captured, sizes)
    binding.take(graph)
    return BoundScore(tuple(binding.steps), binding.values[graph.result])


@dataclass(slots=True)
class Binding:
    """Steps in the making.

    Attributes:
        captured, sizes: as for :func:`bind`.
        values: a node's number -> that of its step.
        steps: so far.
        ranges: what integers each step can give.
        known: each step's number.
    """

    captured: Sequence[CapturedShape]
    sizes: tuple[int, int, int, int]
    values: dict[int, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    ranges: list[Interval] = field(default_factory=list)
    known: dict[Step, int] = field(default_factory=dict)

    def take(self, graph: ScoreGraph) -> None:
        """Choose steps for all nodes."""
        for number, node in enumerate(graph.nodes):
            self.values[number] = self._node(node, graph)

    def _node(self, node: Node, graph: ScoreGraph) -> int:
        if node.op == "input":
            return self._input(node.data)
        if node.op == "constant":
            return self.constant(node.data, node.dtype)
        args = [self.values[arg] for arg in node.args]
        if node.op == "gather":
            return self._element(node.data, args)
        if node.op in ("detach", "named"):
            return args[0]
        if node.op == "cast":
            return self._cast(args[0], graph.nodes[node.args[0]].dtype, node.dtype)
        if node.op in ("lt", "le", "eq", "ne"):
            lanes = self._common_lanes(args)
            return self._emit(f"{node.op}_{lanes}", self._in_lanes(args, lanes), "i")
        if node.op == "add" and node.dtype == "float32":
            return self._float_sum(args[0], args[1])
        if node.dtype == "float32":
            return self._emit(f"{node.op}_f", args, "f")
        if node.dtype == "bool":
            return self._emit(f"{node.op}_i", args, "i")
        return self._integer(node, args)

    def lanes(self, number: int) -> str:
        return "f" if number == RAW else self.steps[number].lanes

    def shape(self, number: int) -> int:
        return TILE if number == RAW else self.steps[number].shape

    def _emit(
        self,
        op: str,
        args: Sequence[int],
        lanes: str,
        interval: Interval = _TRUTH,
        *,
        shape: int | None = None,
        extra: int = 0,
        tensor: int = -1,
        dimension: int = 0,
    ) -> int:
        if shape is None:
            # What depends on a query and on a key depends on the pair.
            shapes = {self.shape(arg) for arg in args}
            shape = TILE if shapes >= {ROW, COLUMN} else max(shapes, default=UNIFORM)
        step = Step(op, tuple(args), shape, lanes, extra, tensor, dimension)
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
            self.ranges.append(interval)
        return self.known[step]

    def _input(self, name: str) -> int:
        if name == "s":
            return RAW
        last = max(self.sizes["bhqk".index(name)] - 1, 0)
        shape = {"q": ROW, "k": COLUMN}.get(name, UNIFORM)
        return self._emit(f"input_{name}", (), "i", (0, last), shape=shape)

    def constant(self, value: int, dtype: str) -> int:
        if dtype == "float32":
            return self._emit("constant_f", (), "f", extra=value)
        if dtype == "bool":
            return self._emit("constant_i", (), "i", (-int(value),) * 2, extra=-int(value))
        return self._whole(value)

    def _whole(self, value: int) -> int:
        lanes = "i" if fits_int32((value, value)) else "l"
        return self._emit(f"constant_{lanes}", (), lanes, (value, value), extra=value)

    def _common_lanes(self, args: Sequence[int], *results: Interval) -> str:
        if self.lanes(args[0]) == "f":
            return "f"
        ranges = [*(self.ranges[arg] for arg in args), *results]
        return "i" if all(map(fits_int32, ranges)) else "l"

    def _in_lanes(self, args: Sequence[int], lanes: str) -> list[int]:
        return [self.lane(arg, lanes) for arg in args]

    def lane(self, number: int, lanes: str) -> int:
        """Return an integer in other lanes; the caller knows that they hold it."""
        if self.lanes(number) == lanes or lanes == "f":
            return number
        op = "long_of_i" if lanes == "l" else "int_of_l"
        return self._emit(op, (number,), lanes, self.ranges[number])

    def _integer(self, node: Node, args: list[int]) -> int:
        condition = [args.pop(0)] if node.op == "where" else []
        ranges = tuple(self.ranges[arg] for arg in args)
        interval = interval_of(node.op, node.dtype, ranges, node.data)
        if interval[0] == interval[1]:
            return self._whole(interval[0])
        if node.op in ("floor_divide", "remainder"):
            return self._divided(node.op, node.dtype, args[0], node.data, interval)
        # int32 wraps around in its own lanes.
        lanes = "i" if node.dtype == "int32" else self._common_lanes(args, interval)
        return self._emit(
            f"{node.op}_{lanes}", condition + self._in_lanes(args, lanes), lanes, interval
        )

    def _divided(self, word: str, dtype: str, value: int, divisor: int, interval: Interval) -> int:
        given = self.ranges[value]
        if word == "remainder":
            if interval == given:
                return value
            if divisor > 0 and divisor & (divisor - 1) == 0:
                return self._two("and", dtype, value, self._whole(divisor - 1), interval)
            quotients = interval_of("floor_divide", dtype, (given,), divisor)
            quotient = self._divided("floor_divide", dtype, value, divisor, quotients)
            covered = interval_of("mul", dtype, (quotients, (divisor, divisor)), None)
            multiple = self._two("mul", dtype, quotient, self._whole(divisor), covered)
            return self._two("sub", dtype, value, multiple, interval)
        if divisor == 1:
            return value
        if divisor == -1:
            return self._two("sub", dtype, self._whole(0), value, interval)
        lanes = "i" if fits_int32(given) and fits_int32((divisor, divisor)) else "l"
        op, extra = "floor_divide", divisor
        if divisor > 0 and divisor & (divisor - 1) == 0:
            op, extra = "shift_right", divisor.bit_length() - 1
        arg = self.lane(value, lanes)
        return self._emit(f"{op}_{lanes}", (arg,), lanes, interval, extra=extra)

    def _float_sum(self, first: int, second: int) -> int:
        for product, other in ((first, second), (second, first)):
            if self.shape(product) == TILE and product != RAW:
                step = self.steps[product]
                if step.op == "mul_f":
                    return self._emit("mul_add_f", (*step.args, other), "f")
        return self._emit("add_f", (first, second), "f")

    def _two(self, word: str, dtype: str, first: int, second: int, interval: Interval) -> int:
        lanes = "i" if dtype == "int32" else self._common_lanes((first, second), interval)
        return self._emit(
            f"{word}_{lanes}", self._in_lanes((first, second), lanes), lanes, interval
        )

    def _cast(self, value: int, source: str, dtype: str) -> int:
        lanes = self.lanes(value)
        if dtype == "bool":
            if lanes == "f":
                zero = self._emit("constant_f", (), "f", extra=float_bits(0.0))
                return self._emit("ne_f", (value, zero), "i")
            return self._emit(f"ne_{lanes}", (value, self.lane(self._whole(0), lanes)), "i")
        if source == "bool":
            value = self._emit("and_i", (value, self._whole(1)), "i", (0, 1))
        if dtype == "float32":
            return self._float(value)
        if lanes == "f":
            value = self._emit("long_of_f", (value,), "l", INT64)
        if dtype == "int32" and self.lanes(value) == "l":
            kept = self.ranges[value] if fits_int32(self.ranges[value]) else INT32
            return self._emit("int_of_l", (value,), "i", kept)
        return value

    def _float(self, value: int) -> int:
        """Convert an integer; a sum's terms instead of the sum where that rounds nothing."""
        step = self.steps[value]
        small = all(
            max(map(abs, self.ranges[number])) <= _EXACT
            for number in (value, *step.args)
            if number != RAW
        )
        if step.shape == TILE and step.op in ("add_i", "sub_i", "mul_i") and small:
            return self._emit(f"{step.op[:3]}_f", [self._float(arg) for arg in step.args], "f")
        return self._emit(f"float_of_{step.lanes}", (value,), "f")

    def _element(self, tensor: int, indices: list[int]) -> int:
        shape = self.captured[tensor]
        offset = self.offset(indices, shape.sizes, shape.strides)
        lanes = {"float32": "f", "bfloat16": "f", "float16": "f", "int64": "l"}.get(
            shape.dtype, "i"
        )
        interval = _RANGES.get(shape.dtype, _TRUTH) if shape.dtype != "bool" else _TRUTH
        base, stride = self.affine(offset)
        if stride != 0 and base is not None:
            return self._emit(
                f"load_{shape.dtype}",
                (self.lane(base, "l"),),
                lanes,
                interval,
                shape=max(COLUMN, self.shape(base)) if self.shape(base) != ROW else TILE,
                extra=stride,
                tensor=tensor,
            )
        wide = int(self.lanes(offset) == "l")
        return self._emit(
            f"gather_{shape.dtype}", (offset,), lanes, interval, extra=wide, tensor=tensor
        )

    def offset(self, indices: list[int], sizes: Sequence[int], strides: Sequence[int]) -> int:
        """Return the offset of an element, with indices that are in range."""
        offset = self._whole(0)
        for dimension, index in enumerate(indices):
            fit = self._fit(index, sizes[dimension], dimension)
            offset = self._sum(offset, self._product(fit, strides[dimension]))
        return offset

    def _fit(self, index: int, size: int, dimension: int) -> int:
        low, high = self.ranges[index]
        if low >= 0 and high < size:
            return index
        if size == 0:
            raise IndexError(
                f"score_mod: index {low} is out of bounds for dimension {dimension} with size 0"
            )
        lanes = "i" if fits_int32((low, high)) and fits_int32((size, size)) else "l"
        return self._emit(
            f"index_{lanes}",
            (self.lane(index, lanes),),
            lanes,
            (0, size - 1),
            extra=size,
            dimension=dimension,
        )

    def _sum(self, first: int, second: int) -> int:
        ranges = self.ranges[first], self.ranges[second]
        interval = interval_of("add", "int64", ranges, None)
        if interval[0] == interval[1]:
            return self._whole(interval[0])
        for one, other in ((first, second), (second, first)):
            if self.ranges[one] == (0, 0):
                return other
        return self._two("add", "int64", first, second, interval)

    def _product(self, value: int, factor: int) -> int:
        if factor == 1:
            return value
        ranges = self.ranges[value], (factor, factor)
        interval = interval_of("mul", "int64", ranges, None)
        if interval[0] == interval[1]:
            return self._whole(interval[0])
        return self._two("mul", "int64", value, self._whole(factor), interval)

    def affine(self, number: int) -> tuple[int | None, int]:
        """Split an offset into what does not depend on the key, and the key's factor.

        Returns:
            A step's number and the factor; (None, 0) where the offset has no such form.
        """
        step = self.steps[number]
        if step.op == "input_k":
            return self._whole(0), 1
        if step.shape < COLUMN:
            return number, 0
        if step.op in ("long_of_i", "int_of_l"):
            return self.affine(step.args[0])
        if step.op[:-2] not in ("add", "sub", "mul"):
            return None, 0
        (first, a), (second, b) = (self.affine(arg) for arg in step.args)
        if first is None or second is None:
            return None, 0
        word = step.op[:-2]
        if word == "mul":
            if self.ranges[first][0] == self.ranges[first][1] and a == 0:
                first, a, second, b = second, b, first, a
            if b != 0 or self.ranges[second][0] != self.ranges[second][1]:
                return None, 0
            factor = self.ranges[second][0]
            return self._product(first, factor), a * factor
        if word == "add":
            return self._sum(first, second), a + b
        interval = interval_of("sub", "int64", (self.ranges[first], self.ranges[second]), None)
        if interval[0] == interval[1]:
            return self._whole(interval[0]), a - b
        return self._two("sub", "int64", first, second, interval), a - b
