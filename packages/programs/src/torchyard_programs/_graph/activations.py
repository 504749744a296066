"""How torch's activation functions become nodes.

At corners the choices are those that give torch's derivative there; what a choice leaves out is
finite, since derivatives multiply it by 0.
"""

from __future__ import annotations

import math
from typing import Final

from torchyard_programs._graph.lowering import Lowering, computed, floating, handles, named, refuse
from torchyard_programs._graph.term import Term
from torchyard_programs._program.typed import Step

__all__: list[str] = []

# Klambauer et al., arXiv 1706.02515, equation 2; the digits are torch's.
_SELU_ALPHA: Final = 1.6732632423543772
_SELU_SCALE: Final = 1.0507009873554805


@handles("relu")
def _relu(lowering: Lowering, step: Step) -> Term:
    (value,) = named(step, "input")
    number = lowering.term(value, computed(step.dtype))
    return (number <= 0).where(0, number)


def _softplus(x: Term) -> Term:
    return x.of("maximum", 0.0) + (-abs(x)).call("exp").call("log1p")


@handles("softplus")
def _softplus_of(lowering: Lowering, step: Step) -> Term:
    value, beta, threshold = named(step, "input", beta=1.0, threshold=20.0)
    x = floating(lowering, step, value)
    if beta == 0:
        raise refuse(step, "with beta=0")
    scaled = x * float(beta)
    return (x.like(float(threshold)) < scaled).where(x, _softplus(scaled) * (1.0 / beta))


@handles("logsigmoid", "mish", "silu", "softsign", "tanhshrink", "gelu")
def _smooth(lowering: Lowering, step: Step) -> Term:
    value, approximate = named(step, "input", approximate="none")
    x = floating(lowering, step, value)
    if step.word == "logsigmoid":
        return -_softplus(-x)
    if step.word == "mish":
        return x * _softplus(x).call("tanh")
    if step.word == "silu":
        return x * x.call("sigmoid")
    if step.word == "softsign":
        return x / (abs(x) + 1.0)
    if step.word == "tanhshrink":
        return x - x.call("tanh")
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.call("tanh") + 1.0)
    return x * 0.5 * ((x * math.sqrt(0.5)).call("erf") + 1.0)


@handles("elu", "celu", "selu")
def _exponential(lowering: Lowering, step: Step) -> Term:
    value, alpha = named(step, "input", alpha=1.0)
    x = floating(lowering, step, value)
    if step.word == "selu":
        return _elu(x, _SELU_ALPHA, 1.0) * _SELU_SCALE
    if step.word == "celu" and alpha == 0:
        raise refuse(step, "with alpha=0")
    return _elu(x, float(alpha), 1.0 / alpha if step.word == "celu" else 1.0)


def _elu(x: Term, factor: float, rate: float) -> Term:
    low = x <= 0.0
    # Also of large x, where e^x overflows; the choice takes nothing of it.
    return low.where((low.where(x, 0.0) * rate).call("expm1") * factor, x)


def _within(x: Term, low: float, high: float) -> Term:
    above = (x <= low).where(low, x)
    return (x.like(high) <= x).where(high, above)


@handles("hardtanh", "relu6", "hardsigmoid", "hardswish")
def _bounded(lowering: Lowering, step: Step) -> Term:
    value, low, high = named(step, "input", min_val=-1.0, max_val=1.0)
    x = floating(lowering, step, value)
    if step.word == "hardtanh":
        return _within(x, float(low), float(high))
    if step.word == "relu6":
        return _within(x, 0.0, 6.0)
    gate = _within(x + 3.0, 0.0, 6.0) / 6.0
    return x * gate if step.word == "hardswish" else gate


@handles("leaky_relu")
def _leaky_relu(lowering: Lowering, step: Step) -> Term:
    value, slope = named(step, "input", negative_slope=0.01)
    x = floating(lowering, step, value)
    return (x <= 0.0).where(x * float(slope), x)


@handles("hardshrink", "softshrink")
def _shrunk(lowering: Lowering, step: Step) -> Term:
    value, size = named(step, "input", lambd=0.5)
    x, bound = floating(lowering, step, value), float(size)
    if step.word == "hardshrink":
        return ((x.like(-bound) <= x) & (x <= bound)).where(0.0, x)
    within = x.is_equal(x).where(0.0, x)
    below = (x < -bound).where(x + bound, within)
    return (x.like(bound) < x).where(x - bound, below)


@handles("threshold")
def _threshold(lowering: Lowering, step: Step) -> Term:
    value, threshold, other = named(step, "input", "threshold", "value")
    x = lowering.term(value, computed(step.dtype))
    return (x <= x.like(threshold)).where(x.like(other), x)
