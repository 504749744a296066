"""How torch's functions of floating point values become nodes."""

from __future__ import annotations

import math
from typing import Final

from torchyard_programs._graph.graph import FLOATS, name_of
from torchyard_programs._graph.lowering import (
    Lowering,
    computed,
    floating,
    handles,
    named,
    plain,
)
from torchyard_programs._graph.term import Term
from torchyard_programs._graph.ties import divides_ties
from torchyard_programs._program.typed import Step

__all__: list[str] = []

_UNARY: Final = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc"),
    *("erfinv", "exp", "exp2", "expm1", "i0", "lgamma", "log", "log1p", "log2", "rsqrt"),
    *("sigmoid", "sin", "sinc", "sinh", "sqrt", "tan", "tanh"),
)


@handles(*_UNARY)
def _function(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    return floating(lowering, step, value).call(step.word)


@handles("atan2", "copysign", "hypot", "xlogy")
def _pair(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    return floating(lowering, step, first).call(step.word, floating(lowering, step, second))


@handles("reciprocal", "deg2rad", "rad2deg", "log10", "frac")
def _scaled(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    x = floating(lowering, step, value)
    if step.word == "reciprocal":
        return 1.0 / x
    if step.word == "log10":
        return x.call("log2") * math.log10(2.0)
    if step.word == "frac":
        return x - x.call("trunc")
    return x * (math.pi / 180 if step.word == "deg2rad" else 180 / math.pi)


@handles("sign", "sgn")
def _sign(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    dtype = computed(step.dtype)
    number = lowering.term(value, dtype)
    return number if dtype == "bool" else number.call("sign")


@handles("isfinite", "isinf", "isnan", "isneginf", "isposinf", "signbit")
def _test(lowering: Lowering, step: Step) -> Term:
    (value,) = plain(step, 1)
    dtype = lowering.dtype_of(value)
    if dtype not in FLOATS:
        x = lowering.term(value, "int64")
        if step.word == "signbit":
            return x < 0
        return x.is_equal(x) if step.word == "isfinite" else x.differs(x)
    x = lowering.term(value, "float64" if dtype == "float64" else "float32")
    if step.word == "signbit":
        return x.call("signbit", dtype="bool")
    if step.word == "isnan":
        return x.differs(x)
    if step.word == "isfinite":
        return abs(x) < math.inf
    infinity = -math.inf if step.word == "isneginf" else math.inf
    return (abs(x) if step.word == "isinf" else x).is_equal(infinity)


@handles("fmax", "fmin")
def _fmax(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    dtype = computed(step.dtype)
    x, y = lowering.term(first, dtype), lowering.term(second, dtype)
    if dtype == "bool":
        return x.of("or" if step.word == "fmax" else "and", y)
    if divides_ties():
        extreme = x.of("maximum" if step.word == "fmax" else "minimum", y)
        return x.differs(x).where(y, y.differs(y).where(x, extreme))
    # Of ties x is taken, which then has the whole gradient; NaN is less than nothing.
    taken = (y <= x) if step.word == "fmax" else (x <= y)
    return (taken | y.differs(y)).where(x, y)


@handles("heaviside")
def _heaviside(lowering: Lowering, step: Step) -> Term:
    value, middle = named(step, "input", "values")
    dtype = computed(step.dtype)
    x, y = lowering.term(value, dtype), lowering.term(middle, dtype)
    return x.is_equal(0).where(y, (x.like(0) < x).where(x.like(1), x.like(0)))


@handles("ldexp")
def _ldexp(lowering: Lowering, step: Step) -> Term:
    value, exponent = named(step, "input", "other")
    return floating(lowering, step, value) * floating(lowering, step, exponent).call("exp2")


@handles("logaddexp", "logaddexp2")
def _logaddexp(lowering: Lowering, step: Step) -> Term:
    first, second = plain(step, 2)
    x, y = floating(lowering, step, first), floating(lowering, step, second)
    unit = math.log(2.0) if step.word == "logaddexp2" else 1.0
    same = x.is_equal(y)
    # Infinities are equal, and their difference is none.
    apart = same.where(0.0, x - y)
    rest = (-abs(apart) * unit).call("exp").call("log1p") * (1.0 / unit)
    # At equality the mean and a constant, whose derivative is a half for each.
    return same.where((x + y) * 0.5 + math.log(2.0) / unit, x.of("maximum", y) + rest)


@handles("logit")
def _logit(lowering: Lowering, step: Step) -> Term:
    value, eps = named(step, "input", eps=None)
    x = floating(lowering, step, value)
    if eps is not None:
        low, high = float(eps), 1.0 - float(eps)
        x = (x < low).where(low, (x.like(high) < x).where(high, x))
    return (x / (1.0 - x)).call("log")


@handles("lerp")
def _lerp(lowering: Lowering, step: Step) -> Term:
    start, end, weight = named(step, "input", "end", "weight")
    first, last = floating(lowering, step, start), floating(lowering, step, end)
    part, apart = floating(lowering, step, weight), last - first
    return (abs(part) < 0.5).where(first + part * apart, last - apart * (1.0 - part))


@handles("addcmul", "addcdiv")
def _mixed(lowering: Lowering, step: Step) -> Term:
    base, first, second, value = named(step, "input", "tensor1", "tensor2", value=1)
    dtype = computed(step.dtype)
    one, other = lowering.term(first, dtype), lowering.term(second, dtype)
    part = one * other if step.word == "addcmul" else one / other
    return lowering.term(base, dtype) + part * lowering.term(value, dtype)


@handles("nan_to_num")
def _nan_to_num(lowering: Lowering, step: Step) -> Term:
    value, nan, posinf, neginf = named(step, "input", nan=0.0, posinf=None, neginf=None)
    dtype = name_of(step.dtype)
    if dtype not in FLOATS:
        return lowering.term(value, dtype)
    import torch

    limits = torch.finfo(step.dtype)
    x = floating(lowering, step, value)
    top = limits.max if posinf is None else float(posinf)
    bottom = limits.min if neginf is None else float(neginf)
    above = x.is_equal(math.inf).where(top, x)
    within = x.is_equal(-math.inf).where(bottom, above)
    return x.differs(x).where(0.0 if nan is None else float(nan), within)
