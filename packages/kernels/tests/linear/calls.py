"""Products with a weight, and how far from float64 their results may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels import PackedWeight
from torchyard_kernels.linear._formats.table import unpacked
from torchyard_kernels.linear._functions.function import record
from torchyard_kernels.linear.contract import LinearCall

__all__ = ["CALL", "LAYOUTS", "Compute", "computed", "excess", "normal", "with_functions"]

Compute = Callable[[LinearCall], Tensor]
"""What an implementation of ``linear/1`` loads."""


def normal(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    """Return normal numbers, the same ones for the same arguments."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def computed(call: LinearCall, dtype: torch.dtype, *, blocked: bool = True) -> Tensor:
    """Return a call's result by torch, each step in a dtype, a prologue's rounded to x's.

    Args:
        call: the call.
        dtype: of all steps.
        blocked: whether float32 is summed as torch does it, in blocks; else term by term, as a
            textbook's loop, which is up to four times as far from float64.
    """
    x = call.x.to(dtype)
    if call.prologue is not None:
        x = call.prologue.apply(x).expand(x.shape).to(call.x.dtype).to(dtype)
    weight = unpacked(call.weight).to(dtype)
    y = x @ weight.mT if blocked or dtype != torch.float32 else _by_terms(x, weight)
    y = y if call.bias is None else y + call.bias.to(dtype)
    if call.epilogue is None:
        return y
    y = call.epilogue.apply(*(y.chunk(2, -1) if call.gated else (y,)))
    return y.expand(call.result_shape())


def _by_terms(x: Tensor, weight: Tensor) -> Tensor:
    y = torch.zeros((*x.shape[:-1], weight.shape[-2]))
    for place in range(x.shape[-1]):
        y = y + x[..., place, None] * weight[..., None, :, place]
    return y


def excess(
    call: LinearCall, compute: Compute, *, blocked: bool = True, roundings: float = 1.0
) -> float:
    """Return the greatest error over its bound: twice the naive error, and roundings of the result.

    Of integers and truth values it is infinite unless they are equal.

    Args:
        call: the call.
        compute: the implementation.
        blocked: as of :func:`computed`, for the naive error.
        roundings: how many roundings of the result there are.
    """
    out = compute(call)
    assert out.shape == call.result_shape()
    wanted = call.x.dtype if call.epilogue is None else call.epilogue.dtype(call.x.dtype)
    assert out.dtype == wanted
    assert out.is_contiguous()
    if not out.numel():
        return 0.0
    naive = computed(call, call.x.dtype, blocked=blocked)
    if not out.is_floating_point():
        return 0.0 if torch.equal(out, naive) else torch.inf
    exact, naive = computed(call, torch.float64), naive.double()
    finfo = torch.finfo(out.dtype)
    bound = 2 * (naive - exact).abs().max() + finfo.smallest_normal
    bound = bound + finfo.eps * roundings * (exact.abs() + exact.abs().max() / 64)
    error = (out.double() - exact).abs() / bound
    return float(error.nan_to_num(nan=torch.inf).max())


LAYOUTS: Final[dict[str, Callable[[Tensor], Any]]] = {
    "plain": lambda weight: weight,
    "transposed": lambda weight: weight.t().contiguous().t(),
    "strided": lambda weight: torch.cat([weight, weight], 1)[:, : weight.shape[1]],
    "panels": lambda weight: PackedWeight(weight).packed,
    "int8": lambda weight: PackedWeight(weight, format="int8").packed,
    "int8-groups": lambda weight: PackedWeight(weight, format="int8", group=32).packed,
    "int4": lambda weight: PackedWeight(weight, format="int4", group=0).packed,
    "int4-groups": lambda weight: (
        PackedWeight(weight, format="int4", group=32, asymmetric=1).packed
    ),
}


CALL: Final = LinearCall(normal(35, 45, seed=1), normal(33, 45), normal(33, seed=2))
_CALL: Final = LinearCall(normal(3, 45, seed=1), normal(38, 45), normal(38, seed=2))


def with_functions(
    prologue: Callable[..., Any] | None = None,
    epilogue: Callable[..., Any] | None = None,
    *,
    gated: bool = False,
    call: LinearCall = _CALL,
) -> LinearCall:
    """Return a call with functions, which may capture tensors.

    Args:
        prologue, epilogue: pointwise; None: none.
        gated: whether the epilogue takes two halves.
        call: the call; by default of 3 rows, 45 products and 38 outputs, in float16.
    """
    return replace(
        call,
        prologue=prologue and record(prologue, "prologue", False, call.x),
        epilogue=epilogue and record(epilogue, "epilogue", gated, call.x),
    )
