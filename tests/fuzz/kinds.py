"""What a kind of argument takes: each value as the plain value that it stands for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from torch import Tensor

__all__ = [
    "ANYTHING",
    "BOOL",
    "FUNCTION",
    "OTHER",
    "REFUSED",
    "TEXT",
    "Kind",
    "choice",
    "integer",
    "kind_of",
    "number",
    "optional",
    "tensor",
]

# What a kind answers of a value that it does not take.
REFUSED: Final = object()


@dataclass(frozen=True)
class Kind:
    """A kind of argument.

    Attributes:
        stands_for: of a value the plain one that a result must be equal for, or REFUSED.
        fits: names in DAMAGED of tensors that a call may take as it likes.
        is_tensor: whether DAMAGED is tried on the good value.
        free: whether a value that is taken may give any result.
    """

    stands_for: Callable[[Any], Any]
    fits: frozenset[str] = frozenset()
    is_tensor: bool = False
    free: bool = False


def _is_int(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def integer(least: float = -math.inf, most: float = math.inf) -> Kind:
    return Kind(lambda v: int(v) if _is_int(v) and least <= v <= most else REFUSED)


def number(least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> Kind:
    def stands_for(v: Any) -> Any:
        real = _is_int(v) or isinstance(v, float | np.floating)
        fits = real and math.isfinite(v) and least <= v <= most and v > above
        return float(v) if fits else REFUSED

    return Kind(stands_for)


def choice(*known: Any) -> Kind:
    def stands_for(v: Any) -> Any:
        return next((one for one in known if type(one) is type(v) and one == v), REFUSED)

    return Kind(stands_for)


def optional(kind: Kind) -> Kind:
    return Kind(
        lambda v: None if v is None else kind.stands_for(v), kind.fits, kind.is_tensor, kind.free
    )


def tensor(*fits: str, also: Collection[type] = ()) -> Kind:
    """Return the kind of a tensor; ``fits``: what else it may be, by the names in DAMAGED."""
    return Kind(
        lambda v: v if isinstance(v, tuple(also)) else REFUSED, frozenset(fits), is_tensor=True
    )


def kind_of(value: Any) -> Kind:
    """Return the kind of an argument that a value is good for."""
    if value is None or isinstance(value, str):
        return choice(value)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return integer()
    if isinstance(value, float):
        return number()
    if isinstance(value, Tensor):
        return tensor()
    return FUNCTION if callable(value) else OTHER


BOOL: Final = Kind(lambda v: bool(v) if isinstance(v, bool | np.bool_) else REFUSED)
FUNCTION: Final = Kind(lambda v: v if callable(v) else REFUSED, free=True)
# A name, a path, a reason: any string but the empty one.
TEXT: Final = Kind(lambda v: v if isinstance(v, str) and v else REFUSED, free=True)
# Objects of classes of ours, or of the caller's: none of the values.
OTHER: Final = Kind(lambda v: REFUSED)
# Whatever Python has: nothing is wrong.
ANYTHING: Final = Kind(lambda v: v, frozenset(("long", "double", "half")), free=True)
