"""Functions of float32 values that kernels compute by several operations.

Each is written so that it loses no accuracy to cancellation: errors are a few roundings, and
infinities and NaN come out as torch's. What a choice leaves out is finite too, since derivatives
multiply it by 0. Where the operations' derivative would lose digits, the function is named, and has
its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torchyard_cpu._programs.graph import ScoreGraph
from torchyard_programs import divides_ties

__all__ = [
    "BINARY",
    "UNARY",
    "Term",
    "expm1",
    "gelu_tanh",
    "hardtanh",
    "lerp",
    "softplus",
    "wrapped",
]


@dataclass(frozen=True, slots=True)
class Term:
    """A float32 value of a graph, or a truth value, to calculate with."""

    graph: ScoreGraph
    number: int

    def of(self, op: str, *others: Term | float, dtype: str = "float32") -> Term:
        """Return an operation on this and others."""
        numbers = [self.number]
        for other in others:
            if isinstance(other, Term):
                numbers.append(other.number)
            else:
                numbers.append(self.graph.constant(float(other), "float32"))
        return Term(self.graph, self.graph.add(op, tuple(numbers), dtype))

    def like(self, value: float) -> Term:
        """Return a constant."""
        return Term(self.graph, self.graph.constant(value, "float32"))

    def where(self, yes: Term | float, no: Term | float) -> Term:
        """Return one value where this truth value holds, the other elsewhere."""
        return self.of("where", yes, no)

    def __add__(self, other: Term | float) -> Term:
        return self.of("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self.of("sub", other)

    def __mul__(self, other: Term | float) -> Term:
        return self.of("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self.of("div", other)

    def __neg__(self) -> Term:
        return self.of("neg")

    def __abs__(self) -> Term:
        return self.of("abs")

    def __lt__(self, other: Term | float) -> Term:
        return self.of("lt", other, dtype="bool")

    def __le__(self, other: Term | float) -> Term:
        return self.of("le", other, dtype="bool")

    def is_equal(self, other: Term | float) -> Term:
        """Return whether the values are equal, which NaN never is."""
        return self.of("eq", other, dtype="bool")


def _named(word: str, result: Term, x: Term) -> Term:
    numbers = (result.number, x.number)
    return Term(x.graph, x.graph.add("named", numbers, "float32", word))


def expm1(x: Term) -> Term:
    """Return e^x - 1."""
    # tanh(x / 2) (e^x + 1), where nothing cancels.
    return _named("expm1", (x * 0.5).of("tanh") * (x.of("exp") + 1.0), x)


def _log1p(x: Term) -> Term:
    # The rounding of 1 + x is made good by the ratio of x and what was added.
    whole = x + 1.0
    lost = whole.is_equal(1.0)
    exact = whole.of("log") * (x / lost.where(1.0, whole - 1.0))
    return _named("log1p", lost.where(x, whole.is_equal(math.inf).where(x, exact)), x)


def softplus(x: Term) -> Term:
    """Return log(1 + e^x)."""
    return _log1p((-abs(x)).of("exp")) + x.of("max", 0.0)


def _gelu(x: Term) -> Term:
    return x * 0.5 * ((x * math.sqrt(0.5)).of("erf") + 1.0)


def gelu_tanh(x: Term) -> Term:
    """Return gelu by the formula with tanh."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.of("tanh") + 1.0)


def lerp(start: Term, end: Term, weight: Term) -> Term:
    """Return torch's linear interpolation, which is exact at both ends."""
    apart = end - start
    near = apart * weight + start
    far = end - apart * (weight.like(1.0) - weight)
    return (abs(weight) < 0.5).where(near, far)


def _trunc(x: Term) -> Term:
    return (x < 0.0).where(-(-x).of("floor"), x.of("floor"))


def _round(x: Term) -> Term:
    """Return the nearest whole number; of two the even one."""
    low = x.of("floor")
    rest = x - low
    odd = low - (low * 0.5).of("floor") * 2.0
    # A whole number minus itself is 0, but infinity's is NaN.
    up = (x.like(0.5) < rest).where(1.0, rest.is_equal(0.5).where(odd, 0.0))
    return low + up


def hardtanh(x: Term, min_val: float = -1.0, max_val: float = 1.0) -> Term:
    """Return x within bounds."""
    # Choices, which have torch's derivative at the bounds.
    above = (x <= min_val).where(min_val, x)
    return (x.like(max_val) <= x).where(max_val, above)


def _relu6(x: Term) -> Term:
    return hardtanh(x, 0.0, 6.0)


def _hardsigmoid(x: Term) -> Term:
    return _relu6(x + 3.0) / 6.0


def _fmax(x: Term, y: Term) -> Term:
    # NaN is less than nothing: of y it leaves x.
    greater = y.is_equal(y).where(x.of("max", y), x) if divides_ties() else (x < y).where(y, x)
    return x.is_equal(x).where(greater, y)


def _fmin(x: Term, y: Term) -> Term:
    less = y.is_equal(y).where(x.of("min", y), x) if divides_ties() else (y < x).where(y, x)
    return x.is_equal(x).where(less, y)


def _logaddexp(x: Term, y: Term) -> Term:
    # Infinities are equal, and their difference is none.
    same = x.is_equal(y)
    apart = same.where(0.0, x - y)
    sum_ = x.of("max", y) + _log1p((-abs(apart)).of("exp"))
    return same.where((x + y) * 0.5 + math.log(2.0), sum_)


def wrapped(word: str, x: Term, divisor: float) -> Term:
    """Return fmod or remainder by a power of two, in which no step rounds."""
    quotient = x * (1.0 / divisor)
    return x - (_trunc(quotient) if word == "fmod" else quotient.of("floor")) * divisor


UNARY: Final[dict[str, Callable[[Term], Term]]] = {
    "deg2rad": lambda x: x * (math.pi / 180),
    "erf": lambda x: x.of("erf"),
    "expm1": expm1,
    "frac": lambda x: x - _trunc(x),
    "gelu": _gelu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "log10": lambda x: x.of("log2") * math.log10(2.0),
    "log1p": _log1p,
    "logsigmoid": lambda x: -softplus(-x),
    "mish": lambda x: x * softplus(x).of("tanh"),
    "rad2deg": lambda x: x * (180 / math.pi),
    "reciprocal": lambda x: x.like(1.0) / x,
    "relu6": _relu6,
    "round": _round,
    "sgn": lambda x: x.of("sign"),
    "sign": lambda x: x.of("sign"),
    "silu": lambda x: x * x.of("sigmoid"),
    "softsign": lambda x: x / (abs(x) + 1.0),
    "tanhshrink": lambda x: x - x.of("tanh"),
    "trunc": _trunc,
}
BINARY: Final[dict[str, Callable[[Term, Term], Term]]] = {
    "fmax": _fmax,
    "fmin": _fmin,
    "logaddexp": _logaddexp,
}
