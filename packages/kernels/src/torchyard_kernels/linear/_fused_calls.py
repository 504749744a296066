"""Calls with functions whose decision is known: they go to their kernel with nothing around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from torch import Tensor

from torchyard import registry
from torchyard_kernels._calls import foremost
from torchyard_kernels.linear.contract import LINEAR, LinearRequest
from torchyard_programs import is_undisturbed

if TYPE_CHECKING:
    from torchyard_kernels.fast_path import DirectCall

__all__ = ["NO_FUNCTION", "remember", "served"]

_KEY: Final = f"{LINEAR}: fused"
# Functions of more structures than this push all others out.
_MOST: Final = 256
# Text and captured tensors, as they were recorded.
_Function: TypeAlias = tuple[str, tuple[Tensor, ...]]
NO_FUNCTION: Final[_Function] = "", ()

# A kind of captured tensors, what serves it, and how it is called.
_Kind: TypeAlias = tuple[LinearRequest, "DirectCall | None", Callable[..., Tensor | None] | None]
# Of the two programs and of whether there are halves.
_Known: TypeAlias = dict[tuple[str, str, bool], list[_Kind]]


def served(
    before: _Function,
    after: _Function,
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
        before, after: the functions; NO_FUNCTION: there is none.
        gated: whether the second takes halves.
        x, weight, form, bias: as ``serve`` takes them.
    """
    known: _Known | None = registry().conclusions().get(_KEY)
    if known is None or not is_undisturbed():
        return None
    first, first_captured = before
    last, last_captured = after
    key = (first, last, gated)
    kinds = known.get(key)
    if kinds is None:
        return None
    for kind in kinds:
        serve = kind[2]
        if serve is not None:
            found: Tensor | None = serve(x, weight, form, bias, first_captured, last_captured)
            if found is not None:
                if kind is not kinds[0]:
                    known[key] = foremost(kind, kinds)
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
    met = next((other for other in kinds if other[0] == kind), None)
    direct: DirectCall | None = None if met is None else met[1]
    if met is None and len(kinds) < _MOST:
        direct = make(request)
        kinds.append((kind, direct, None if direct is None else direct.serve))
    if direct is not None:
        direct.admit(request)


def _kind(request: LinearRequest) -> LinearRequest:
    """Return a request without what one direct call serves any of."""
    return replace(
        request, rows=0, outputs=0, depth=0, batch=1, weight="", weight_options=(), bias=False
    )
