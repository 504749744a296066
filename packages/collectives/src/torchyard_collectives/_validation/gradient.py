"""What a gradient means: the conventions, and which of them each op has.

A value that every rank holds is *replicated* when each rank's gradient of it is a term of the
whole, and *invariant* when each rank's gradient of it is the whole. One that is a term of a sum is
*partial*; one that is a rank's own is *varying*. The gradient of a replicated value is partial and
that of a partial one replicated; varying and invariant values have gradients of their own kind.
docs/collectives.md derives each op's transpose from that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from torch import Tensor

from torchyard import arguments
from torchyard_collectives._errors import GradientConventionError
from torchyard_collectives._torch_compat import constant

__all__ = ["Grad", "Placement", "Typed", "parse_gradient"]


class Placement(StrEnum):
    """How the ranks' values of a tensor belong together."""

    INVARIANT = "invariant"
    PARTIAL = "partial"
    REPLICATED = "replicated"
    VARYING = "varying"


class Typed(NamedTuple):
    """What an op's input and output are; its gradient follows from the pair.

    Attributes:
        src: of the input.
        dst: of the output.
    """

    src: Placement | str
    dst: Placement | str


Grad: TypeAlias = str | Typed

_I, _P, _R, _V = Placement.INVARIANT, Placement.PARTIAL, Placement.REPLICATED, Placement.VARYING


class _Convention(NamedTuple):
    """What "sum" and "replicated" stand for, and every pair that has a transpose."""

    sum: Typed
    replicated: Typed
    legal: tuple[Typed, ...]


def _alike(*pairs: Typed) -> _Convention:
    return _Convention(pairs[0], pairs[0], pairs)


_GATHERED: Final = _Convention(Typed(_V, _R), Typed(_V, _I), (Typed(_V, _R), Typed(_V, _I)))
_REDUCED: Final = _Convention(
    Typed(_P, _R), Typed(_P, _I), (Typed(_P, _R), Typed(_P, _I), Typed(_V, _R), Typed(_V, _I))
)
_SUMMED_APART: Final = _alike(Typed(_P, _V), Typed(_V, _V))
_MOVED: Final = _alike(Typed(_V, _V))
_CONVENTIONS: Final = {
    "all_gather": _GATHERED,
    "all_reduce": _REDUCED,
    "all_to_all": _MOVED,
    "broadcast": _GATHERED,
    "gather": _MOVED,
    "permute": _MOVED,
    "recv": _MOVED,
    "reduce": _SUMMED_APART,
    "reduce_scatter": _SUMMED_APART,
    "scatter": _MOVED,
    "send": _MOVED,
    "shard": _Convention(Typed(_R, _V), Typed(_I, _V), (Typed(_R, _V), Typed(_I, _V))),
    "shift": _MOVED,
    "vary": _Convention(
        Typed(_R, _V), Typed(_I, _V), (Typed(_R, _V), Typed(_I, _V), Typed(_I, _R))
    ),
}


def parse_gradient(op: str, grad: Grad, x: Tensor, name: str = "x") -> tuple[bool, bool]:
    """Check an op's tensor, and return whether its input and its output are invariant.

    Args:
        op: the public name of the op.
        grad: "sum", "replicated" or a Typed pair.
        x: the tensor, which is called ``name``.

    Raises:
        TypeError, ValueError: x is no dense tensor with memory.
        GradientConventionError: grad is none of them, or the op has no gradient for the pair.
    """
    arguments.tensor(op, name, x)
    if not isinstance(grad, (str, tuple)):
        raise GradientConventionError(
            f"grad: {op} expected 'sum', 'replicated' or Typed(src, dst), got {type(grad).__name__}"
        )
    # torch.compile evaluates what follows on plain words alone.
    if isinstance(grad, tuple) and len(grad) == 2:
        found: tuple[bool, bool] = _parse_pair(op, grad[0], grad[1])
    else:
        found = _parse_name(op, grad)
    return found


@constant
def _parse_pair(op: str, src: str, dst: str) -> tuple[bool, bool]:
    try:
        pair = Typed(Placement(src), Placement(dst))
    except ValueError:
        raise GradientConventionError(
            f"grad: {op} expected placements among {', '.join(Placement)}, got {src!r} and {dst!r}"
        ) from None
    convention = _CONVENTIONS[op]
    if pair not in convention.legal:
        legal = ", ".join(f"{known.src} -> {known.dst}" for known in convention.legal)
        raise GradientConventionError(
            f"grad: {op} has no gradient from {pair.src} to {pair.dst}; it has {legal}"
        )
    return pair.src is _I, pair.dst is _I


@constant
def _parse_name(op: str, name: object) -> tuple[bool, bool]:
    convention = _CONVENTIONS[op]
    named = {"sum": convention.sum, "replicated": convention.replicated}
    if name not in named:
        raise GradientConventionError(
            f"grad: {op} expected 'sum' (each rank's loss is a term of the sum), 'replicated' (one "
            f"loss, the same on each rank) or Typed(src, dst), got {name!r}"
        )
    pair = named[str(name)]
    return pair.src is _I, pair.dst is _I
