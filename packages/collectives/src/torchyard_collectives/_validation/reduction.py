"""The kinds of reduction, and the local work that each needs around a sum."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from torch import Tensor

from torchyard import arguments
from torchyard_collectives._torch_compat import constant

__all__ = ["Op", "PremulSum", "Reduction", "after_sum", "before_sum", "parse_reduction"]


class Reduction(NamedTuple):
    """How ranks' elements become one; at most one is True, and none for the least.

    Plain truths, because torch.compile keeps no identity of an enum's members.
    """

    summed: bool = False
    averaged: bool = False
    multiplied: bool = False
    greatest: bool = False


_REDUCTIONS: Final = {
    "avg": Reduction(averaged=True),
    "max": Reduction(greatest=True),
    "min": Reduction(),
    "product": Reduction(multiplied=True),
    "sum": Reduction(summed=True),
}


class PremulSum(NamedTuple):
    """The sum of each rank's tensor times its factor, which may require gradients.

    Attributes:
        factor: a number, or a tensor that broadcasts to x's shape.
    """

    factor: float | Tensor


Op: TypeAlias = str | PremulSum


@constant
def _parse(op: str) -> tuple[bool, ...]:
    if op not in _REDUCTIONS:
        raise ValueError(
            f"op: expected one of {', '.join(_REDUCTIONS)} or PremulSum(factor), got {op!r}"
        )
    return tuple(_REDUCTIONS[op])


def parse_reduction(op: Op, x: Tensor) -> Reduction:
    """Return which reduction is meant.

    Raises:
        ValueError: none is.
        TypeError: x has no averages, or no order.
    """
    if not isinstance(op, str | PremulSum):
        raise arguments.wrong_kind(
            "collective", "op", f"one of {', '.join(_REDUCTIONS)} or PremulSum(factor)", op
        )
    kind = Reduction(*_parse("sum" if isinstance(op, PremulSum) else op))
    if kind.averaged and not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"x: expected a floating-point or complex tensor for avg, got {x.dtype}")
    if x.is_complex() and not (kind.summed or kind.averaged or kind.multiplied):
        raise TypeError("x: expected numbers with an order for min and max, got complex ones")
    return kind


def before_sum(x: Tensor, op: Op) -> Tensor:
    """Return what is summed.

    Raises:
        ValueError: a factor is not finite, or does not broadcast to x's shape.
        TypeError: it is neither a number nor a tensor; or what it makes of x does not fit x's
            dtype.
    """
    if not isinstance(op, PremulSum):
        return x
    scaled: Tensor = x * _factor(op.factor, x)
    if scaled.shape != x.shape:
        raise ValueError(
            f"op: expected a factor that broadcasts to x's shape {list(x.shape)}, got one that "
            f"makes it {list(scaled.shape)}"
        )
    real, whole = not x.is_complex(), not (x.is_complex() or x.is_floating_point())
    if (real and scaled.is_complex()) or (whole and scaled.is_floating_point()):
        raise TypeError(f"op: expected a factor for {x.dtype}, got one that makes {scaled.dtype}")
    return scaled.to(x.dtype)


def _factor(factor: object, x: Tensor) -> Any:
    if isinstance(factor, Tensor):
        return arguments.tensor("collective", "op", factor)
    if x.is_complex() and isinstance(factor, complex):
        return factor
    remedy = "PremulSum takes a number, or a tensor that broadcasts to x's shape"
    if x.is_floating_point() or x.is_complex() or isinstance(factor, float):
        return arguments.number("collective", "op", factor, remedy=remedy)
    return arguments.integer(
        "collective", "op", factor, least=-(1 << 63), most=(1 << 63) - 1, remedy=remedy
    )


def after_sum(total: Tensor, kind: Reduction, size: int) -> Tensor:
    """Return the result from the sum."""
    return total / size if kind.averaged else total
