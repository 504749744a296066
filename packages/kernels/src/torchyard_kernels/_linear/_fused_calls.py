"""Calls with functions whose decision is known: they go to their kernel with nothing around it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from torch import Tensor

from torchyard import registry
from torchyard_kernels.contracts.linear import LINEAR, LinearRequest
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard_kernels.contracts.direct import DirectCall

__all__ = ["remember", "served"]

_KEY: Final = f"{LINEAR}: fused"
# Functions of more structures than this push all others out.
_MOST: Final = 256
_Function: TypeAlias = tuple[str, tuple[Tensor, ...]]
_NO_FUNCTION: Final[_Function] = "", ()

# Of the two programs and of whether there are halves: what serves each kind of captured tensors.
_Known: TypeAlias = dict[tuple[str, str, bool], list[tuple[LinearRequest, "DirectCall | None"]]]


def served(
    before: _Function | None,
    after: _Function | None,
    gated: bool,
    x: Tensor,
    weight: Any,
    form: tuple[int, ...] | int,
    bias: Tensor | None,
) -> Tensor | None:
    """Compute a call like one that was decided before; None, without an effect, for any other.

    Of the arguments nothing is taken for granted but the functions'. That nothing is being compiled
    is for the caller to know.

    Args:
        before, after: text and captured tensors of the functions, as they were recorded.
        gated: whether the second takes halves.
        x, weight, form, bias: as ``serve`` takes them.
    """
    known: _Known | None = registry().conclusions().get(_KEY)
    if known is None or not is_undisturbed():
        return None
    first, first_captured = before or _NO_FUNCTION
    last, last_captured = after or _NO_FUNCTION
    key = (first, last, gated)
    kinds = known.get(key)
    if kinds is None:
        return None
    for kind in kinds:
        direct = kind[1]
        if direct is not None:
            found: Tensor | None = direct.serve(
                x, weight, form, bias, first_captured, last_captured
            )
            if found is not None:
                if kind is not kinds[0]:
                    # The next call is most likely alike. Another list, since threads read it.
                    known[key] = [kind, *(other for other in kinds if other is not kind)]
                return found
    return None


def remember(conclusions: dict[str, Any], kernel: object, request: LinearRequest) -> None:
    """Let calls that make a request with functions be served directly, where the kernel can.

    Args:
        conclusions: the registry's, from before it decided.
        kernel: what it decided for.
        request: what it decided.
    """
    make = getattr(kernel, "direct_fused", None)
    if make is None:
        return
    known: _Known = conclusions.setdefault(_KEY, {})
    if len(known) >= _MOST:
        known.clear()
    kinds = known.setdefault((request.prologue, request.epilogue, request.gated), [])
    kind = _kind(request)
    direct = next((offer for other, offer in kinds if other == kind), None)
    if direct is None and all(other != kind for other, _ in kinds) and len(kinds) < _MOST:
        direct = make(request)
        kinds.append((kind, direct))
    if direct is not None:
        direct.admit(request)


def _kind(request: LinearRequest) -> LinearRequest:
    """Return a request without what one direct call serves any of."""
    return replace(
        request, rows=0, outputs=0, depth=0, batch=1, weight="", weight_options=(), bias=False
    )
