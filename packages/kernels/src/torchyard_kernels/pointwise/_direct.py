"""Calls whose decision is known: they go to their kernel with nothing around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor
from torch.autograd.graph import increment_version

from torchyard import registry
from torchyard_kernels._calls import foremost
from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseKernel, PointwiseRequest
from torchyard_programs import is_undisturbed

__all__ = ["count_write", "remember", "served"]

# Of calls that return new tensors, and of those that write to given ones.
_MAKING: Final = f"{POINTWISE}: direct"
_WRITING: Final = f"{POINTWISE}: direct, in place"
# Programs of more structures than this push all others out.
_MOST: Final = 256

# Of each program the ``serve`` of every kind of operands that was met.
_Known = dict[str, list[tuple[PointwiseRequest, Callable[..., Any]]]]


def served(
    text: str,
    lists: tuple[Any, ...],
    captured: tuple[Tensor, ...],
    out: tuple[Sequence[Tensor], ...] | None,
) -> Any:
    """Compute a call like one that was decided before; None, without an effect, for any other.

    Of the arguments nothing is taken for granted. That nothing is being compiled is for the caller
    to know.

    Returns:
        A tuple of lists; True where ``out`` was written to.
    """
    known: _Known | None = registry().conclusions().get(_MAKING if out is None else _WRITING)
    if known is None or not is_undisturbed():
        return None
    kinds = known.get(text)
    if kinds is None:
        return None
    for kind in kinds:
        found = kind[1](lists, captured, out)
        if found is not None:
            if kind is not kinds[0]:
                known[text] = foremost(kind, kinds)
            return found
    return None


def count_write(out: Sequence[Sequence[Tensor]]) -> None:
    """Count a write to tensors as torch does, for what saved one of them for a backward.

    A kernel writes to their memory, which torch does not see.
    """
    for result in out:
        increment_version(result)


def remember(
    conclusions: dict[str, Any], kernel: PointwiseKernel, request: PointwiseRequest
) -> None:
    """Let calls that make such requests be served directly, where the kernel can.

    Args:
        conclusions: the registry's, from before it decided.
        kernel: what it decided for, with no demand of the call itself.
        request: what it decided.
    """
    make = getattr(kernel, "direct", None)
    if make is None:
        return
    known: _Known = conclusions.setdefault(_WRITING if request.out else _MAKING, {})
    if len(known) >= _MOST:
        known.clear()
    kinds = known.setdefault(request.text, [])
    if all(other != request for other, _ in kinds) and len(kinds) < _MOST:
        serve = make(request)
        if serve is not None:
            kinds.append((request, serve))
