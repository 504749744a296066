"""Every word of the vocabulary as functions of (x, y, i, j).

x and y are float32, i and j int64. A domain keeps arguments where torch defines a result that
differentiable kernels agree on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["SIZE", "WORDS", "Word", "values"]

# Elements of each argument.
SIZE: Final = 128


@dataclass(frozen=True)
class Word:
    """A use of a word.

    Attributes:
        word: the word.
        function: of (x, y, i, j).
        domain: what x is mapped through before; None leaves it.
        slope: whether torch has its derivative.
        tolerance: in units of float32's rounding, relative to the result or 1.
    """

    word: str
    function: Callable[..., Any]
    domain: Callable[[Tensor], Tensor] | None = None
    slope: bool = True
    tolerance: float = 16.0


def _unit(x: Tensor) -> Tensor:
    return x.clamp(-0.995, 0.995)


def _above_one(x: Tensor) -> Tensor:
    return x.abs() + 1.0


def _positive(x: Tensor) -> Tensor:
    return x.abs() + 0.01


def _open(x: Tensor) -> Tensor:
    return x.clamp(-4, 4).sigmoid()


def _moderate(x: Tensor) -> Tensor:
    return x.clamp(-6.1, 6.1)


def _each(names: str, **options: Any) -> list[Word]:
    """Return functions of one value."""

    def function(name: str) -> Callable[..., Any]:
        owner = next(o for o in (torch, F, torch.special, Tensor) if hasattr(o, name))
        return lambda x, y, i, j: getattr(owner, name)(x)

    return [Word(name, function(name), **options) for name in names.split()]


WORDS: Final[tuple[Word, ...]] = (
    *_each("ceil floor trunc round sign sgn", slope=False),
    *_each(
        "abs neg positive square exp exp2 expm1 sigmoid tanh sin cos atan asinh erf",
        domain=_moderate,
    ),
    *_each("sinh cosh erfc frac deg2rad rad2deg sinc", domain=_moderate, tolerance=32),
    *_each("tan", domain=_unit),
    *_each("acos asin atanh erfinv", domain=_unit, tolerance=32),
    *_each("acosh", domain=_above_one, tolerance=32),
    *_each("log log2 log10 log1p sqrt rsqrt reciprocal", domain=_positive, tolerance=32),
    *_each("lgamma digamma i0", domain=_moderate, tolerance=400),
    *_each("logit", domain=_open, tolerance=64),
    *_each("isfinite isinf isnan isneginf isposinf signbit logical_not", slope=False),
    *_each("relu relu6 hardsigmoid hardswish hardtanh hardshrink softshrink softsign tanhshrink"),
    *_each("celu elu selu leaky_relu"),
    *_each("gelu silu mish softplus logsigmoid", domain=_moderate, tolerance=32),
    Word("clone", lambda x, y, i, j: x.clone() * 2),
    Word("contiguous", lambda x, y, i, j: x.contiguous() * 2),
    Word("detach", lambda x, y, i, j: x.detach() * x),
    Word("gelu", lambda x, y, i, j: F.gelu(x, approximate="tanh"), _moderate, tolerance=32),
    Word("softplus", lambda x, y, i, j: F.softplus(x, beta=2.0, threshold=3.0), _moderate),
    Word("threshold", lambda x, y, i, j: F.threshold(x, 0.25, -1.5)),
    Word("elu", lambda x, y, i, j: F.elu(x, alpha=0.5)),
    Word("celu", lambda x, y, i, j: F.celu(x, alpha=0.5)),
    Word("hardtanh", lambda x, y, i, j: F.hardtanh(x, -2.0, 0.5)),
    Word("leaky_relu", lambda x, y, i, j: F.leaky_relu(x, 0.2)),
    Word("round", lambda x, y, i, j: torch.round(x, decimals=1), _moderate, slope=False),
    Word("nan_to_num", lambda x, y, i, j: torch.nan_to_num(x, 1.0, 2.0, 3.0)),
    Word("logit", lambda x, y, i, j: torch.logit(x, eps=0.1), _open, tolerance=64),
    Word("add", lambda x, y, i, j: x + y),
    Word("add", lambda x, y, i, j: torch.add(x, y, alpha=2.5)),
    Word("add", lambda x, y, i, j: i + j * 2),
    Word("sub", lambda x, y, i, j: x - y * 2),
    Word("sub", lambda x, y, i, j: torch.sub(i, j, alpha=3)),
    Word("rsub", lambda x, y, i, j: torch.rsub(x, y)),
    Word("rsub", lambda x, y, i, j: 1.0 - x),
    Word("mul", lambda x, y, i, j: x * y),
    Word("mul", lambda x, y, i, j: x * i),
    Word("div", lambda x, y, i, j: x / y),
    Word("div", lambda x, y, i, j: i / 7),
    Word("div", lambda x, y, i, j: torch.div(x, y, rounding_mode="floor"), _moderate, slope=False),
    Word("div", lambda x, y, i, j: torch.div(x, y, rounding_mode="trunc"), _moderate, slope=False),
    Word("div", lambda x, y, i, j: torch.div(i, 3, rounding_mode="trunc")),
    Word("div", lambda x, y, i, j: torch.div(i, -3, rounding_mode="floor")),
    Word("rdiv", lambda x, y, i, j: 2.0 / x),
    Word("floor_divide", lambda x, y, i, j: i // 3),
    Word("floor_divide", lambda x, y, i, j: i // -3),
    Word("floor_divide", lambda x, y, i, j: i // (j * 2 + 1)),
    Word("floor_divide", lambda x, y, i, j: x // y, _moderate, slope=False),
    Word("rfloor_divide", lambda x, y, i, j: 100 // (i * 2 + 1)),
    Word("remainder", lambda x, y, i, j: i % 5),
    Word("remainder", lambda x, y, i, j: i % -5),
    Word("remainder", lambda x, y, i, j: torch.remainder(x, y), _moderate),
    Word("remainder", lambda x, y, i, j: torch.remainder(x, 0.7), _moderate),
    Word("rremainder", lambda x, y, i, j: 100 % (i * 2 + 1)),
    Word("fmod", lambda x, y, i, j: torch.fmod(x, y), _moderate),
    Word("fmod", lambda x, y, i, j: torch.fmod(i, 5)),
    Word("pow", lambda x, y, i, j: x**2),
    Word("pow", lambda x, y, i, j: x**3),
    Word("pow", lambda x, y, i, j: x**-2),
    Word("pow", lambda x, y, i, j: x**0.5, _positive),
    Word("pow", lambda x, y, i, j: x**1.7, _positive, tolerance=64),
    Word("pow", lambda x, y, i, j: x ** torch.clamp(y, -3, 3), _positive, tolerance=256),
    Word("pow", lambda x, y, i, j: i**3),
    Word("pow", lambda x, y, i, j: i ** torch.abs(j)),
    Word("rpow", lambda x, y, i, j: 2**x, _moderate),
    Word("rpow", lambda x, y, i, j: 3.0**x, _moderate, tolerance=64),
    Word("bitwise_and", lambda x, y, i, j: i & j),
    Word("bitwise_and", lambda x, y, i, j: (i > j) & (x > y)),
    Word("bitwise_or", lambda x, y, i, j: i | j),
    Word("bitwise_or", lambda x, y, i, j: (i > j) | (x > y)),
    Word("bitwise_xor", lambda x, y, i, j: i ^ 5),
    Word("bitwise_xor", lambda x, y, i, j: (i > j) ^ (x > y)),
    Word("bitwise_not", lambda x, y, i, j: ~i),
    Word("bitwise_not", lambda x, y, i, j: ~(i > j)),
    Word("bitwise_left_shift", lambda x, y, i, j: i << 3),
    Word("rbitwise_left_shift", lambda x, y, i, j: torch.bitwise_left_shift(3, j & 7)),
    Word("bitwise_right_shift", lambda x, y, i, j: i >> 2),
    Word("rbitwise_right_shift", lambda x, y, i, j: torch.bitwise_right_shift(1000, j & 7)),
    Word("eq", lambda x, y, i, j: i == j),
    Word("ne", lambda x, y, i, j: x != y),
    Word("lt", lambda x, y, i, j: x < i),
    Word("le", lambda x, y, i, j: i <= j),
    Word("gt", lambda x, y, i, j: x > 0),
    Word("ge", lambda x, y, i, j: x >= y),
    Word("logical_and", lambda x, y, i, j: torch.logical_and(x, i)),
    Word("logical_or", lambda x, y, i, j: torch.logical_or(x, i)),
    Word("logical_xor", lambda x, y, i, j: torch.logical_xor(x, i)),
    Word("where", lambda x, y, i, j: torch.where(i > j, x, y)),
    Word("where", lambda x, y, i, j: torch.where(x > 0, i, -1)),
    Word("masked_fill", lambda x, y, i, j: torch.masked_fill(x, i > j, -2.5)),
    Word("maximum", lambda x, y, i, j: torch.maximum(x, y)),
    Word("minimum", lambda x, y, i, j: torch.minimum(x, y)),
    Word("maximum", lambda x, y, i, j: torch.maximum(i, j)),
    Word("fmax", lambda x, y, i, j: torch.fmax(x, y)),
    Word("fmin", lambda x, y, i, j: torch.fmin(x, y)),
    Word("clamp", lambda x, y, i, j: torch.clamp(x, -0.5, 0.75)),
    Word("clamp", lambda x, y, i, j: torch.clamp(i, min=-2)),
    Word("clamp_min", lambda x, y, i, j: torch.clamp_min(x, 0.5)),
    Word("clamp_max", lambda x, y, i, j: torch.clamp_max(x, 0.5)),
    Word("atan2", lambda x, y, i, j: torch.atan2(x, y)),
    Word("copysign", lambda x, y, i, j: torch.copysign(x, y)),
    Word("hypot", lambda x, y, i, j: torch.hypot(x, y)),
    Word("heaviside", lambda x, y, i, j: torch.heaviside(x, y), slope=False),
    # torch's derivative of ldexp is 0 for negative exponents, whose power is an integer's there.
    Word("ldexp", lambda x, y, i, j: torch.ldexp(x, torch.clamp(i, -8, 8)), slope=False),
    Word("lerp", lambda x, y, i, j: torch.lerp(x, y, 0.3)),
    Word("lerp", lambda x, y, i, j: torch.lerp(x, y, torch.sigmoid(x)), _moderate, tolerance=64),
    Word("logaddexp", lambda x, y, i, j: torch.logaddexp(x, y), _moderate, tolerance=32),
    Word("logaddexp2", lambda x, y, i, j: torch.logaddexp2(x, y), _moderate, tolerance=32),
    Word("xlogy", lambda x, y, i, j: torch.xlogy(x, torch.abs(y) + 0.5), _moderate, tolerance=32),
    Word("addcmul", lambda x, y, i, j: torch.addcmul(x, x, y, value=0.5)),
    Word("addcdiv", lambda x, y, i, j: torch.addcdiv(x, y, torch.abs(x) + 1.0, value=0.5)),
    Word("bfloat16", lambda x, y, i, j: x.bfloat16() * y.bfloat16(), slope=False),
    Word("half", lambda x, y, i, j: x.half() + y.half(), slope=False),
    Word("to", lambda x, y, i, j: x.to(torch.float16).to(torch.float32), slope=False),
    Word("to", lambda x, y, i, j: i.to(torch.float32) * x),
    Word("type_as", lambda x, y, i, j: i.type_as(x) * y),
    Word("double", lambda x, y, i, j: (x.double() * y + 1.0) / 3.0),
    Word("float", lambda x, y, i, j: i.float() * x),
    Word("int", lambda x, y, i, j: x.int() + 1, _moderate, slope=False),
    Word("long", lambda x, y, i, j: x.long() * i, _moderate, slope=False),
    Word("bool", lambda x, y, i, j: x.bool(), slope=False),
    Word("zeros_like", lambda x, y, i, j: x + torch.zeros_like(i)),
    Word("ones_like", lambda x, y, i, j: x + torch.ones_like(x)),
    Word("full_like", lambda x, y, i, j: x * torch.full_like(x, 2.5)),
    Word("new_full", lambda x, y, i, j: x * x.new_full((), 2.5)),
    Word("new_ones", lambda x, y, i, j: x + x.new_ones(())),
    Word("new_zeros", lambda x, y, i, j: x + x.new_zeros(())),
    Word("new_tensor", lambda x, y, i, j: x + x.new_tensor(2.5)),
)


def values(word: Word, *, special: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (x, y, i, j) for a word, with zeros, infinities, NaN and ties where asked for."""
    generator = torch.Generator().manual_seed(3)
    x, y = (torch.randn(SIZE, generator=generator) * 3.0 for _ in range(2))
    i, j = (torch.randint(-9, 10, (SIZE,), generator=generator) for _ in range(2))
    if special and word.domain is None:
        corners = torch.tensor(
            [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, torch.inf, -torch.inf, torch.nan]
        )
        x[: corners.numel()] = corners
        x[16 : 16 + corners.numel()] = corners
        y[16 : 16 + corners.numel()] = corners.flip(0)
        x[32:36] = y[32:36]
    return x if word.domain is None else word.domain(x), y, i, j
