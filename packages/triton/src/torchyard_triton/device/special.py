"""Special functions of float32 values: gamma's logarithm and its derivatives, and Bessel's i0."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["digamma", "i0", "i1", "lgamma", "trigamma"]

_PI = tl.constexpr(3.141592653589793)
_PI_SQUARED = tl.constexpr(9.869604401089358)
_LOG_PI = tl.constexpr(1.1447298858494002)


@triton.jit
def _sine_of_pi(x):
    """Return |sin(pi x)|, exactly 0 at whole numbers."""
    rest = x - tl.floor(x)
    return tl.sin(tl.where(rest > 0.5, 1.0 - rest, rest) * _PI)


@triton.jit
def _lgamma_positive(x):
    """Return log gamma for x > 0: shifted beyond 8, then Stirling's series."""
    product = x
    for i in tl.static_range(1, 8):
        product = product * (x + i)
    small = x < 8.0
    y = tl.where(small, x + 8.0, x)
    z = 1.0 / (y * y)
    series = (0.08333333333333333 - z * (0.002777777777777778 - z * 7.936507936507937e-4)) / y
    # (y - 1/2) (log y - 1) - 1/2 + log(2 pi) / 2, so that nothing of the size of y log y cancels.
    stirling = (y - 0.5) * (tl.log(y) - 1.0) + 0.4189385332046727 + series
    return tl.where(small, stirling - tl.log(tl.where(small, product, 1.0)), stirling)


@triton.jit
def lgamma(x):
    """Return log |gamma(x)|; below 0.5 by reflection."""
    positive = _lgamma_positive(tl.where(x < 0.5, 1.0 - x, x))
    sine = _sine_of_pi(x)
    reflected = tl.where(sine == 0.0, float("inf"), -(tl.log(sine) - _LOG_PI + positive))
    result = tl.where(x < 0.5, reflected, positive)
    return tl.where(tl.abs(x) == float("inf"), float("inf"), result)


@triton.jit
def digamma(x):
    """Return the derivative of log gamma; whole numbers below 0 give NaN, 0 gives -inf."""
    low = x < 0.5
    y = tl.where(low, 1.0 - x, x)
    shift = y * 0.0
    for i in tl.static_range(6):
        step = y + i
        shift += tl.where(y < 6.0, 1.0 / step, 0.0)
    far = tl.where(y < 6.0, y + 6.0, y)
    z = 1.0 / (far * far)
    series = z * (0.08333333333333333 - z * (0.008333333333333333 - z * 0.003968253968253968))
    result = tl.log(far) - 0.5 / far - series - shift
    rest = x - tl.floor(x)
    angle = tl.where(rest > 0.5, rest - 1.0, rest) * _PI
    reflected = result - tl.cos(angle) / tl.sin(angle) * _PI
    reflected = tl.where(rest == 0.0, float("nan"), reflected)
    reflected = tl.where(x == 0.0, -1.0 / x, reflected)
    return tl.where(low, reflected, tl.where(x == float("inf"), x, result))


@triton.jit
def trigamma(x):
    """Return the second derivative of log gamma."""
    low = x < 0.5
    y = tl.where(low, 1.0 - x, x)
    shift = y * 0.0
    for i in tl.static_range(6):
        step = y + i
        shift += tl.where(y < 6.0, 1.0 / (step * step), 0.0)
    far = tl.where(y < 6.0, y + 6.0, y)
    z = 1.0 / (far * far)
    series = 0.16666666666666666 - z * (0.03333333333333333 - z * 0.023809523809523808)
    result = 1.0 / far + 0.5 * z + z / far * series + shift
    sine = _sine_of_pi(x)
    return tl.where(low, 1.0 / (sine * sine) * _PI_SQUARED - result, result)


@triton.jit
def i0(x):
    """Return the modified Bessel function of order 0; Abramowitz and Stegun 9.8.1 and 9.8.2."""
    size = tl.abs(x)
    t = tl.where(size < 3.75, size / 3.75, 1.0)
    t = t * t
    p = 0.2659732 + t * (0.0360768 + t * 0.0045813)
    near = 1.0 + t * (3.5156229 + t * (3.0899424 + t * (1.2067492 + t * p)))
    u = 3.75 / tl.where(size < 3.75, 3.75, size)
    q = -0.02057706 + u * (0.02635537 + u * (-0.01647633 + u * 0.00392377))
    q = 0.00225319 + u * (-0.00157565 + u * (0.00916281 + u * q))
    q = 0.39894228 + u * (0.01328592 + u * q)
    half = tl.exp(0.5 * size)
    far = half * (half / tl.sqrt(tl.where(size < 3.75, 3.75, size))) * q
    far = tl.where(size == float("inf"), size, far)
    return tl.where(size < 3.75, near, far)


@triton.jit
def i1(x):
    """Return the modified Bessel function of order 1; Abramowitz and Stegun 9.8.3 and 9.8.4."""
    size = tl.abs(x)
    t = tl.where(size < 3.75, size / 3.75, 1.0)
    t = t * t
    p = 0.02658733 + t * (0.00301532 + t * 0.00032411)
    near = size * (0.5 + t * (0.87890594 + t * (0.51498869 + t * (0.15084934 + t * p))))
    u = 3.75 / tl.where(size < 3.75, 3.75, size)
    q = 0.02282967 + u * (-0.02895312 + u * (0.01787654 - u * 0.00420059))
    q = -0.00362018 + u * (0.00163801 + u * (-0.01031555 + u * q))
    q = 0.39894228 + u * (-0.03988024 + u * q)
    half = tl.exp(0.5 * size)
    far = half * (half / tl.sqrt(tl.where(size < 3.75, 3.75, size))) * q
    result = tl.where(size < 3.75, near, far)
    return tl.where(x < 0.0, -result, result)
