"""The memory layout of out: its dimensions in the order of query's."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["empty_in_order", "in_order"]


def in_order(out: Tensor, query: Tensor) -> Tensor:
    """Return out in query's stride order, as torch's flex_attention returns it.

    So a model that transposed before attention can transpose back and view, without a copy. An out
    that has that layout already is returned itself.
    """
    order = _order(query)
    if order is None:
        return out
    permuted = out.permute(order)
    if permuted.is_contiguous():
        return out
    return permuted.contiguous().permute(_inverse(order))


def empty_in_order(shape: Sequence[int], query: Tensor) -> Tensor:
    """Return a tensor without values, with the layout that :func:`in_order` gives."""
    order = _order(query)
    if order is None:
        return query.new_empty(shape)
    return query.new_empty([shape[dim] for dim in order]).permute(_inverse(order))


def _order(query: Tensor) -> tuple[int, ...] | None:
    """Return query's dimensions, the farthest apart in memory first; None where they are in order.

    Dimensions that share memory, those of an expanded tensor, keep their places among equals.
    """
    # Ignores dimensions of size 1, whose strides are arbitrary.
    if query.is_contiguous():
        return None
    strides = query.stride()
    order = tuple(sorted(range(query.ndim), key=lambda dim: strides[dim], reverse=True))
    return None if order == tuple(range(query.ndim)) else order


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(dim) for dim in range(len(order))]
