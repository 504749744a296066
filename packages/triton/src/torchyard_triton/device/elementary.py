"""Elementary functions of float32 values, from what every Triton back end has.

Triton's own language has exp, log, sqrt, sin, cos, erf and little else; the rest of torch's
functions is in libraries of the vendors, which differ and which the interpreter lacks. Polynomials
are those of Cephes (Moshier, netlib.org/cephes, single precision) unless noted.
Errors are a few units in the last place; infinities and NaN are torch's.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "copysign",
    "cosh",
    "erfc",
    "erfinv",
    "expm1",
    "hypot",
    "log1p",
    "power",
    "sigmoid",
    "signbit",
    "sinc",
    "sinh",
    "tan",
    "tanh",
    "xlogy",
]

# On the right of an operator: the interpreter has no constexpr on the left of a block.
_PI = tl.constexpr(3.141592653589793)
_HALF_PI = tl.constexpr(1.5707963267948966)
_QUARTER_PI = tl.constexpr(0.7853981633974483)
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def expm1(x):
    """Return e^x - 1, without cancellation near 0."""
    # Taylor: the first term left out is below 2e-9 of x.
    near = 1.0 + x * 0.125
    near = 1.0 + x * 0.14285714285714285 * near
    near = 1.0 + x * 0.16666666666666666 * near
    near = 1.0 + x * 0.2 * near
    near = 1.0 + x * 0.25 * near
    near = 1.0 + x * 0.3333333333333333 * near
    near = 1.0 + x * 0.5 * near
    return tl.where(tl.abs(x) < 0.4, x * near, tl.exp(x) - 1.0)


@triton.jit
def log1p(x):
    """Return log(1 + x), without cancellation near 0: 2 atanh(x / (2 + x)) as a series there."""
    s = x / (2.0 + x)
    z = s * s
    series = 0.3333333333333333 + z * (0.2 + z * (0.14285714285714285 + z * 0.1111111111111111))
    return tl.where(tl.abs(x) < 0.35, 2.0 * s + 2.0 * s * z * series, tl.log(1.0 + x))


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def signbit(x):
    """Return whether a float's sign bit is set, that of -0 and NaN included."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.int32, bitcast=True) < 0


@triton.jit
def copysign(x, y):
    """Return |x| with the sign of y."""
    return tl.where(signbit(y), -tl.abs(x), tl.abs(x))


@triton.jit
def tanh(x):
    """Return e / (e + 2) for e = e^(2|x|) - 1, with x's sign."""
    e = expm1(2.0 * tl.where(tl.abs(x) > 20.0, 20.0, tl.abs(x)))
    return copysign(tl.where(x == x, e / (e + 2.0), x), x)


@triton.jit
def sinh(x):
    size = tl.abs(x)
    e = expm1(tl.where(size > 1.0, 1.0, size))
    half = tl.exp(0.5 * size)
    large = 0.5 * half * half - 0.5 / (half * half)
    return copysign(tl.where(size < 1.0, 0.5 * (e + e / (e + 1.0)), large), x)


@triton.jit
def cosh(x):
    half = tl.exp(0.5 * tl.abs(x))
    return 0.5 * half * half + 0.5 / (half * half)


@triton.jit
def tan(x):
    return tl.sin(x) / tl.cos(x)


@triton.jit
def sinc(x):
    """Return sin(pi x) / (pi x), 1 at 0."""
    return tl.where(x == 0.0, 1.0, tl.sin(x * _PI) / (x * _PI))


@triton.jit
def asinh(x):
    size = tl.abs(x)
    near = log1p(size + size * size / (1.0 + tl.sqrt(size * size + 1.0)))
    return copysign(tl.where(size > 1e9, tl.log(size) + _LN2, near), x)


@triton.jit
def acosh(x):
    t = x - 1.0
    near = log1p(t + tl.sqrt(2.0 * t + t * t))
    return tl.where(x < 1.0, float("nan"), tl.where(x > 1e9, tl.log(x) + _LN2, near))


@triton.jit
def atanh(x):
    size = tl.abs(x)
    return copysign(0.5 * log1p(2.0 * size / (1.0 - size)), x)


@triton.jit
def _asin_small(x):
    """Return asin for |x| <= 0.5."""
    z = x * x
    p = 4.2163199048e-2 * z + 2.4181311049e-2
    p = (p * z + 4.5470025998e-2) * z + 7.4953002686e-2
    return x + x * z * (p * z + 1.6666752422e-1)


@triton.jit
def asin(x):
    size = tl.abs(x)
    far = -2.0 * _asin_small(tl.sqrt(0.5 * (1.0 - size))) + _HALF_PI
    return copysign(tl.where(size > 0.5, far, _asin_small(size)), x)


@triton.jit
def acos(x):
    half = 2.0 * _asin_small(tl.sqrt(0.5 * (1.0 - tl.abs(x))))
    far = tl.where(x < 0.0, -half + _PI, half)
    return tl.where(tl.abs(x) > 0.5, far, -_asin_small(x) + _HALF_PI)


@triton.jit
def atan(x):
    size = tl.abs(x)
    large, middle = size > 2.414213562373095, size > 0.4142135623730950
    part = tl.where(middle, (size - 1.0) / (size + 1.0), size)
    part = tl.where(large, -1.0 / size, part)
    z = part * part
    p = (8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1
    p = part + part * z * (p * z - 3.33329491539e-1)
    base = tl.where(large, _HALF_PI, tl.where(middle, _QUARTER_PI, 0.0))
    return copysign(tl.where(x == x, base + p, x), x)


@triton.jit
def atan2(y, x):
    """Return the angle of the point (x, y)."""
    x, y = tl.broadcast(x, y)
    up, right = tl.abs(y), tl.abs(x)
    both = (up == float("inf")) & (right == float("inf"))
    ratio = tl.where(both, 1.0, up / tl.where(right == 0.0, 1.0, right))
    angle = tl.where((right == 0.0) & (up > 0.0), _HALF_PI, atan(ratio))
    angle = tl.where(signbit(x), -angle + _PI, angle)
    return tl.where((x == x) & (y == y), copysign(angle, y), x + y)


@triton.jit
def hypot(x, y):
    x, y = tl.broadcast(tl.abs(x), tl.abs(y))
    large, small = tl.where(x > y, x, y), tl.where(x > y, y, x)
    ratio = tl.where(large == 0.0, 0.0, small / tl.where(large == 0.0, 1.0, large))
    length = large * tl.sqrt(1.0 + ratio * ratio)
    infinite = (x == float("inf")) | (y == float("inf"))
    return tl.where(infinite, float("inf"), tl.where((x == x) & (y == y), length, x + y))


@triton.jit
def power(x, y):
    """Return x^y as |x|^y = 2^(y log2 |x|), with the signs and corners of C's pow."""
    x, y = tl.broadcast(x, y)
    size = tl.abs(x)
    whole = tl.floor(y) == y
    odd = whole & (tl.abs(y) < 16777216.0) & (tl.floor(y * 0.5) * 2.0 != y)
    result = tl.exp2(y * tl.log2(size))
    result = tl.where(size == 1.0, 1.0, result)
    result = tl.where(signbit(x) & odd, -result, result)
    finite = size < float("inf")
    result = tl.where((x < 0.0) & finite & (whole == 0) & (size != 1.0), float("nan"), result)
    result = tl.where((x == -1.0) & (whole == 0), float("nan"), result)
    result = tl.where((x == x) & (y == y), result, x + y)
    return tl.where((y == 0.0) | (x == 1.0), 1.0, result)


@triton.jit
def erfc(x):
    """Return 1 - erf(x); beyond 0.5 the Chebyshev fit of Numerical Recipes 6.2, relative 1.2e-7."""
    size = tl.abs(x)
    t = 1.0 / (1.0 + 0.5 * size)
    p = -0.82215223 + t * 0.17087277
    p = -1.13520398 + t * (1.48851587 + t * p)
    p = 0.09678418 + t * (-0.18628806 + t * (0.27886807 + t * p))
    p = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * p))
    far = t * tl.exp(-size * size + p)
    far = tl.where(size > 12.0, 0.0, far)
    far = tl.where(x < 0.0, 2.0 - far, far)
    return tl.where(size < 0.5, 1.0 - tl.erf(x), tl.where(x == x, far, x))


@triton.jit
def erfinv(x):
    """Return the inverse of erf; Giles, "Approximating the erfinv function", single precision."""
    w = tl.where(tl.abs(x) > 0.5, -tl.log((1.0 - x) * (1.0 + x)), -log1p(-x * x))
    a = w - 2.5
    p = 3.43273939e-07 + 2.81022636e-08 * a
    p = -4.39150654e-06 + a * (-3.5233877e-06 + a * p)
    p = -0.00125372503 + a * (0.00021858087 + a * p)
    p = 1.50140941 + a * (0.246640727 + a * (-0.00417768164 + a * p))
    c = tl.sqrt(tl.where(w > 5.0, w, 5.0)) - 3.0
    r = 0.000100950558 - 0.000200214257 * c
    r = -0.00367342844 + c * (0.00134934322 + c * r)
    r = -0.0076224613 + c * (0.00573950773 + c * r)
    r = 2.83297682 + c * (1.00167406 + c * (0.00943887047 + c * r))
    inner = x * tl.where(w < 5.0, p, r)
    size = tl.abs(x)
    edge = tl.where(size == 1.0, copysign(size * float("inf"), x), inner)
    return tl.where(size > 1.0, float("nan"), edge)


@triton.jit
def xlogy(x, y):
    """Return x log y, 0 where x is 0, whatever y is but NaN."""
    product = tl.where(x == 0.0, 0.0, x * tl.log(y))
    return tl.where(y == y, product, y)
