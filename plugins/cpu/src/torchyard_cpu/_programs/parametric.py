"""Functions of a float32 value and plain numbers, which kernels compute by several operations.

The numbers have torch's names and defaults; what torch refuses, such as a negative ``lambd``, never
arrives here. At corners the choices are those that give torch's derivative there; what a choice
leaves out is finite, since derivatives multiply it by 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from torchyard_cpu._programs.composed import Term, expm1, hardtanh, softplus
from torchyard_cpu._programs.graph import UnsupportedProgramError

__all__ = ["PARAMETRIC"]

# Klambauer et al., arXiv 1706.02515, equation 2; the digits are torch's.
_SELU_ALPHA: Final = 1.6732632423543772
_SELU_SCALE: Final = 1.0507009873554805


def _celu(x: Term, alpha: float = 1.0) -> Term:
    if alpha == 0:
        raise UnsupportedProgramError("celu with alpha=0")
    return _exponential(x, alpha, 1.0 / alpha)


def _elu(x: Term, alpha: float = 1.0) -> Term:
    return _exponential(x, alpha, 1.0)


def _exponential(x: Term, factor: float, rate: float) -> Term:
    low = x <= 0.0
    # Also of large x, where e^x overflows; the choice takes nothing of it.
    return low.where(expm1(low.where(x, 0.0) * rate) * factor, x)


def _hardshrink(x: Term, lambd: float = 0.5) -> Term:
    # Of a negative lambd nothing is within; NaN is not.
    inside = (x.like(-lambd) <= x).of("and", x <= lambd, dtype="bool")
    return inside.where(0.0, x)


def _leaky_relu(x: Term, negative_slope: float = 0.01) -> Term:
    return (x <= 0.0).where(x * negative_slope, x)


def _nan_to_num(x: Term, *, posinf: float, neginf: float, nan: float = 0.0) -> Term:
    above = x.is_equal(math.inf).where(posinf, x)
    return x.is_equal(x).where(x.is_equal(-math.inf).where(neginf, above), nan)


def _selu(x: Term) -> Term:
    return _exponential(x, _SELU_ALPHA, 1.0) * _SELU_SCALE


def _softplus(x: Term, beta: float = 1.0, threshold: float = 20.0) -> Term:
    if beta == 0:
        raise UnsupportedProgramError("softplus with beta=0")
    if beta == 1 and threshold == 20:
        return softplus(x)  # beyond the threshold it is x, to the last bit
    scaled = x * beta
    return (x.like(threshold) < scaled).where(x, softplus(scaled) * (1.0 / beta))


def _softshrink(x: Term, lambd: float = 0.5) -> Term:
    within = x.is_equal(x).where(0.0, x)
    below = (x < -lambd).where(x + lambd, within)
    return (x.like(lambd) < x).where(x - lambd, below)


def _threshold(x: Term, threshold: float, value: float) -> Term:
    return (x <= threshold).where(value, x)


PARAMETRIC: Final[dict[str, Callable[..., Term]]] = {
    "celu": _celu,
    "elu": _elu,
    "hardshrink": _hardshrink,
    "hardtanh": hardtanh,
    "leaky_relu": _leaky_relu,
    "nan_to_num": _nan_to_num,
    "selu": _selu,
    "softplus": _softplus,
    "softshrink": _softshrink,
    "threshold": _threshold,
}
