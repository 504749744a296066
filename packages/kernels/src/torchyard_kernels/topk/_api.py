"""``topk`` and its relatives."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchyard import arguments, note_use
from torchyard_kernels.topk import _validation as validation
from torchyard_kernels.topk._ops import FAST_PATH, select
from torchyard_kernels.topk.contract import Order, TopKCall

__all__ = ["TopK", "kthvalue", "masked_topk", "partial_sort", "segmented_topk", "topk"]

_try_call = FAST_PATH.try_call


class TopK(NamedTuple):
    """What was selected.

    Attributes:
        values: the elements.
        indices: int64, where they are along the dimension.
    """

    values: Tensor
    indices: Tensor


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
    """Return the k greatest elements along a dimension, or the k least.

    As torch.topk, and deterministic besides: among equal elements those of the lowest index are
    selected, and come first. NaN is greater than every number. Differentiable in x, any number of
    times; works under torch.compile(fullgraph=True), torch.export, vmap and with fake tensors.

    Args:
        x: any shape and strides; float16, bfloat16, float32, float64, uint8, int8, int16, int32 or
            int64.
        k: 0 to the length of the dimension.
        dim: which.
        largest: the greatest, else the least.
        sorted: best first; else in the order of their indices.

    Returns:
        values, in x's dtype, and indices, both contiguous and of x's shape with k in place of dim's
        size.

    Raises:
        TypeError, ValueError, IndexError: an argument does not fit; names it.
        torchyard.UnsupportedError: no implementation supports the call; shows every candidate.
    """
    if not is_dynamo_compiling():
        found = _try_call(None, x, k, dim, largest, sorted)
        if found is not None:
            return tuple.__new__(TopK, found)
    return _rows("topk", x, None, k, dim, largest, _order("topk", sorted))


def partial_sort(x: Tensor, k: int, dim: int = -1, descending: bool = False) -> TopK:
    """Return the first k of ``torch.sort(x, dim, descending, stable=True)``, and their indices.

    Arguments and errors are those of :func:`topk`, which this is with sort's defaults.
    """
    if not is_dynamo_compiling():
        found = _try_call(None, x, k, dim, descending, True)
        if found is not None:
            return tuple.__new__(TopK, found)
    descending = arguments.boolean("partial_sort", "descending", descending)
    return _rows("partial_sort", x, None, k, dim, descending, Order.SORTED)


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> TopK:
    """Return the k-th least element along a dimension, and its index.

    As torch.kthvalue, and deterministic: the index is that of the k-th place of the stable sort.

    Args:
        x, dim: as of :func:`topk`.
        k: 1 to the length of the dimension.
        keepdim: whether the dimension stays, with size 1.

    Raises:
        As :func:`topk`.
    """
    keepdim = arguments.boolean("kthvalue", "keepdim", keepdim)
    if not keepdim and not is_dynamo_compiling():
        found = _try_call(None, x, k, dim)
        if found is not None:
            return tuple.__new__(TopK, found)
    found = _rows("kthvalue", x, None, k, dim, False, Order.LAST)
    if keepdim or not x.dim():
        return found
    return TopK(found.values.squeeze(dim), found.indices.squeeze(dim))


def masked_topk(
    x: Tensor, mask: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> TopK:
    """Return the k greatest, or least, of the elements that a mask shows.

    Args:
        x, dim, largest, sorted: as of :func:`topk`.
        mask: bool, broadcastable to x's shape: True where an element is seen.
        k: 0 to the length of the dimension.

    Returns:
        As :func:`topk`. Where fewer than k elements are seen, the last places have index -1 and
        the value -inf or the dtype's least, or inf or its greatest for the least; no gradient
        comes from them.

    Raises:
        As :func:`topk`.
    """
    if not is_dynamo_compiling():
        found = _try_call(None, x, k, dim, largest, sorted, mask)
        if found is not None:
            return tuple.__new__(TopK, found)
    validation.check_tensor("masked_topk", x)
    visible = validation.check_mask("masked_topk", mask, x)
    return _rows("masked_topk", x, visible, k, dim, largest, _order("masked_topk", sorted))


def segmented_topk(
    x: Tensor, offsets: Tensor, k: int, largest: bool = True, sorted: bool = True
) -> TopK:
    """Return the k greatest elements of each segment of a flat tensor, or the k least.

    Args:
        x: [N], any dtype of :func:`topk`.
        offsets: int64 [S + 1], rising from at least 0 to at most N: segment s is
            x[offsets[s]:offsets[s + 1]].
        k: 0 or more; a segment may be shorter.
        largest, sorted: as of :func:`topk`.

    Returns:
        values and indices [S, k]. Indices are of x itself; places that a segment has no element
        for are as :func:`masked_topk`'s.

    Raises:
        As :func:`topk`.
    """
    if not is_dynamo_compiling():
        found = _try_call(None, x, k, -1, largest, sorted, None, offsets)
        if found is not None:
            return tuple.__new__(TopK, found)
    function = "segmented_topk"
    validation.check_tensor(function, x)
    validation.check_offsets(function, offsets, x)
    k = validation.checked_k(function, k, 0, None)
    largest, order = arguments.boolean(function, "largest", largest), _order(function, sorted)
    segments = offsets.shape[0] - 1
    if k == 0 or segments == 0:
        return _nothing(x, (segments, k))
    if not torch.compiler.is_compiling():
        _note_use(x.device.type)
    return TopK(*select(TopKCall(x, k, largest, order, None, offsets.contiguous())))


def _order(function: str, sorted: bool) -> Order:
    return Order.SORTED if arguments.boolean(function, "sorted", sorted) else Order.INDEX


def _rows(
    function: str, x: Tensor, mask: Tensor | None, k: int, dim: int, largest: bool, order: Order
) -> TopK:
    validation.check_tensor(function, x)
    dim = validation.dim_of(function, x, dim)
    largest = arguments.boolean(function, "largest", largest)
    if not x.dim():
        scalar = _rows(
            function, x[None], None if mask is None else mask[None], k, 0, largest, order
        )
        # As torch: k is 0 or 1, and a scalar has no dimension for it.
        return scalar if k == 0 else TopK(scalar.values[0], scalar.indices[0])
    k = validation.checked_k(function, k, 1 if order is Order.LAST else 0, x.shape[dim])
    if k == 0:
        return _nothing(x, (*x.shape[:dim], 0, *x.shape[dim + 1 :]))
    if not torch.compiler.is_compiling():
        _note_use(x.device.type)
    last = x.dim() - 1
    if dim == last:
        return TopK(*select(TopKCall(x, k, largest, order, mask)))
    rows_mask = None if mask is None else mask.movedim(dim, last)
    values, indices = select(TopKCall(x.movedim(dim, last), k, largest, order, rows_mask))
    return TopK(values.movedim(last, dim).contiguous(), indices.movedim(last, dim).contiguous())


def _nothing(x: Tensor, shape: tuple[Any, ...]) -> TopK:
    # Of x, so that a gradient can be asked for: it is zero.
    values = x.flatten()[:0].reshape(shape)
    return TopK(values, x.new_empty(shape, dtype=torch.int64))


# Without a frame of ours, so that the warning names the caller's line.
_note_use = cache(partial(note_use, "kernels.topk"))
