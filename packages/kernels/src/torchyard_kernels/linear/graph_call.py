"""A call of ``linear`` as a node of a graph, for passes of compilers."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from torchyard import GraphCall
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear._functions.function import record
from torchyard_kernels.linear._ops import arguments_of
from torchyard_kernels.linear._validation import check_linear
from torchyard_kernels.linear.contract import LINEAR, LinearCall

__all__ = ["graph_call"]


def graph_call(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    prologue: Callable[[Tensor], Tensor] | None = None,
    epilogue: Callable[[Tensor], Tensor] | None = None,
) -> GraphCall:
    """Return the node that computes what ``linear`` does with these arguments.

    Args:
        x, weight, bias: as of ``linear``, on the device ``meta``: sizes and dtypes are read alone.
        prologue, epilogue: as of ``linear``. The node has no gradient if there is one.

    Raises:
        TypeError, ValueError: dtypes or shapes that do not fit.
        ProgramError: a function cannot be recorded, or is not pointwise.
    """
    check_linear(x, weight, bias)
    functions = [
        None if function is None else record(function, role, False, x)
        for role, function in (("prologue", prologue), ("epilogue", epilogue))
    ]
    for function in functions:
        if function is not None:
            function.check(x.dtype)
    before, after = functions
    call = LinearCall(x, weight, bias, before, after)
    fused = before is not None or after is not None
    return GraphCall(
        OPERATORS.in_graph("linear_fused" if fused else "linear"),
        tuple(arguments_of(call)),
        {LINEAR: call.request()},
        x.dtype if after is None else after.dtype(x.dtype),
    )
