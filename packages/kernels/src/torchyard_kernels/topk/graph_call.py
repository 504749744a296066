"""A call of ``topk`` as a node of a graph, for passes of compilers."""

from __future__ import annotations

from torch import Tensor

from torchyard import GraphCall
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.topk.contract import TOPK, Order, TopKCall

__all__ = ["graph_call"]


def graph_call(x: Tensor, k: int, dim: int, *, largest: bool) -> GraphCall:
    """Return the node that computes values and indices as ``topk`` does, best first.

    Args:
        x: on the device ``meta``: sizes and dtypes are read alone.
        k: 1 or more, at most x's size in ``dim``.
        dim: counts from the front or, where negative, from the back.
        largest: whether the greatest are asked for.
    """
    dim %= x.ndim
    request = TopKCall(x.movedim(dim, -1), k, largest, Order.SORTED).request()
    arguments = (x, None, k, dim, largest, Order.SORTED.value)
    return GraphCall(OPERATORS.in_graph("topk"), arguments, {TOPK: request}, x.dtype)
