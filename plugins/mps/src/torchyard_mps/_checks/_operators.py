"""Which arguments of torch's operators are indices, and of what."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["CHECKS", "Check"]

# (operator, indices, size, dimension, wraps) -> the indices to use instead.
Check = Callable[..., Tensor]
_Arguments = tuple[Any, ...]


def _of_dimension(wraps: bool) -> Callable[[str, _Arguments, Check], _Arguments]:
    """Return what checks an operator of (tensor, dimension, index, ...)."""

    def checked(name: str, args: _Arguments, check: Check) -> _Arguments:
        tensor, dimension, index, *rest = args
        size = tensor.shape[dimension] if tensor.dim() else 1
        used = check(name, index, size, f"dimension {dimension}", wraps=wraps)
        return tensor, dimension, used, *rest

    return checked


def _flat(name: str, args: _Arguments, check: Check) -> _Arguments:
    tensor, index, *rest = args
    return tensor, check(name, index, tensor.numel(), "all elements", wraps=True), *rest


def _rows(name: str, args: _Arguments, check: Check) -> _Arguments:
    weight, index, *rest = args
    return weight, check(name, index, weight.shape[0], "the rows", wraps=False), *rest


def _gradient_rows(name: str, args: _Arguments, check: Check) -> _Arguments:
    gradient, index, rows, *rest = args
    return gradient, check(name, index, rows, "the rows", wraps=False), rows, *rest


def _unpooled(name: str, args: _Arguments, check: Check) -> _Arguments:
    tensor, index, size, *rest = args
    used = check(name, index, prod(size), "an image of the output", wraps=False)
    return tensor, used, size, *rest


def _listed(name: str, args: _Arguments, check: Check) -> _Arguments:
    """Check an operator of (tensor, indices by dimension, ...); a mask takes several dimensions."""
    tensor, indices, *rest = args
    dimension, used = 0, []
    for index in indices:
        if index is None or index.dtype in (torch.bool, torch.uint8):
            used.append(index)
            dimension += 1 if index is None else index.dim()
        else:
            size, what = tensor.shape[dimension], f"dimension {dimension}"
            used.append(check(name, index, size, what, wraps=True))
            dimension += 1
    return tensor, used, *rest


_BY_DIMENSION: Final = (
    "gather index_add index_add_ index_copy index_copy_ index_reduce index_reduce_ index_select "
    "scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"
).split()

# Name in torch.ops.aten -> from name, arguments and check to the arguments to use instead. As read
# from torch 2.13: which wrap negative indices is part of what an operator does.
CHECKS: Final[dict[str, Callable[[str, _Arguments, Check], _Arguments]]] = {
    **dict.fromkeys(_BY_DIMENSION, _of_dimension(False)),
    **dict.fromkeys(("index_fill", "index_fill_"), _of_dimension(True)),
    **dict.fromkeys(("take", "put", "put_"), _flat),
    **dict.fromkeys(("index", "index_put", "index_put_", "_index_put_impl_"), _listed),
    **dict.fromkeys(
        ("embedding", "embedding_renorm_", "_embedding_bag", "_embedding_bag_forward_only"), _rows
    ),
    "embedding_dense_backward": _gradient_rows,
    **dict.fromkeys(("max_unpool2d", "max_unpool3d"), _unpooled),
}
