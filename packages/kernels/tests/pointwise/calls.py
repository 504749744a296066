"""Calls of a function over lists, and how far from float64 their results may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_kernels.pointwise._arguments import operand_of
from torchyard_kernels.pointwise._evaluation import result_dtypes
from torchyard_kernels.pointwise.contract import PointwiseCall, PointwiseRequest
from torchyard_kernels.pointwise.implementations.map import portable_pointwise
from torchyard_kernels.pointwise.reference import reference_pointwise
from torchyard_programs import trace

__all__ = ["Compute", "call_of", "call_of_text", "excess", "normal"]

Compute = Callable[[PointwiseCall], tuple[Sequence[Tensor], ...]]
"""What an implementation of ``pointwise/1`` loads."""
_Out = tuple[Sequence[Tensor], ...]
# Of a chain of steps in float32.
_ROUNDINGS: Final = 8


def call_of(function: Callable[..., Any], *lists: Sequence[Any], out: _Out = ()) -> PointwiseCall:
    """Return the call of a function, which may capture tensors, for the groups of some lists."""
    inputs = tuple((f"x{number}", None) for number in range(len(lists)))
    # What is captured is where the lists are, on whichever device a suite has its tensors.
    text, captured = trace(function, "fn", inputs, torch.device("cpu"), anywhere=True)
    return call_of_text(text, lists, out, tuple(captured))


def call_of_text(
    text: str, lists: Sequence[Sequence[Any]], out: _Out = (), captured: tuple[Tensor, ...] = ()
) -> PointwiseCall:
    """Return the call of a program."""
    request = PointwiseRequest(
        "cpu",
        text,
        tuple(operand_of(items[0]) for items in lists),
        tuple(operand_of(tensor) for tensor in captured),
        tuple(str(items[0].dtype).removeprefix("torch.") for items in out),
        len(lists[0]),
    )
    return PointwiseCall(request, tuple(lists), captured, out)


def normal(
    shapes: Sequence[Sequence[int]], dtype: torch.dtype = torch.float32, seed: int = 0
) -> list[Tensor]:
    """Return tensors of normal numbers, the same ones for the same arguments."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(tuple(shape), generator=generator).to(dtype) for shape in shapes]


def excess(call: PointwiseCall, compute: Compute) -> float:
    """Return the greatest error over its bound, infinite where a result must be equal and is not.

    The bound is twice the error of torch's float32 operations, rounded once, and a rounding of the
    result; and of each element some roundings of float32, and one of the result. What is right is
    computed before the call, which may write to its inputs.
    """
    request = call.request
    dtypes = result_dtypes(request.text, request.inputs, request.captured)
    naive, exact = portable_pointwise(replace(call, out=())), _exact(call)
    found = compute(call)
    worst = 0.0
    for number, dtype in enumerate(dtypes):
        for group, got in enumerate(found[number]):
            rough, right = naive[number][group], exact[number][group]
            assert got.shape == right.shape
            if call.out:
                assert got is call.out[number][group]
            else:
                assert got.dtype == dtype
                assert got.is_contiguous()
            worst = max(worst, _ratio(got, rough.to(got.dtype), right))
    return worst


def _exact(call: PointwiseCall) -> tuple[list[Tensor], ...]:
    """Return the results in float64, rounded nowhere but where the program converts."""
    wide = {"float16", "bfloat16", "float32"}
    request = replace(
        call.request,
        inputs=tuple(
            ("float64" if name in wide else name, ndim) for name, ndim in call.request.inputs
        ),
        captured=tuple(
            ("float64" if name in wide else name, ndim) for name, ndim in call.request.captured
        ),
        out=(),
    )
    inputs = tuple([_widened(item) for item in items] for items in call.inputs)
    return reference_pointwise(
        PointwiseCall(request, inputs, tuple(_widened(item) for item in call.captured))
    )


def _widened(item: Any) -> Any:
    return item.double() if isinstance(item, Tensor) and item.is_floating_point() else item


def _ratio(got: Tensor, naive: Tensor, exact: Tensor) -> float:
    if not got.is_floating_point():
        return 0.0 if torch.equal(got, naive) else torch.inf
    finite = naive.isfinite()
    if not torch.equal(got[~finite].nan_to_num(), naive[~finite].nan_to_num()):
        return torch.inf
    if not finite.any():
        return 0.0
    wanted = exact[finite].double()
    finfo = torch.finfo(got.dtype)
    bound = 2 * (naive[finite].double() - wanted).abs().max() + finfo.smallest_normal
    bound = bound + finfo.eps * (wanted.abs() + wanted.abs().max() / 64)
    eps = torch.finfo(torch.float32).eps * _ROUNDINGS
    if got.dtype != torch.float32:
        eps += finfo.eps
    bound = torch.minimum(bound, eps * (1 + wanted.abs()))
    error = (got[finite].double() - wanted).abs() / bound
    return float(error.nan_to_num(nan=torch.inf).max())
