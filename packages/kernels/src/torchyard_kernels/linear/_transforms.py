"""Forward mode and torch.vmap of a product, as products."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from torchyard import TransformError
from torchyard_kernels._operators import OPERATORS
from torchyard_kernels.linear._errors import PackedGradientError

__all__ = ["as_rows", "batched", "product", "refuse_packed_gradient", "tangent"]


def product(x: Tensor, weight: list[Tensor], spec: str, bias: Tensor | None) -> Tensor:
    """Call the op."""
    out: Tensor = OPERATORS["linear"](x, weight, spec, bias)
    return out


def as_rows(tensor: Tensor) -> Tensor:
    """Return a tensor [..., K] as [rows, K]."""
    return tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def refuse_packed_gradient() -> None:
    """Raise PackedGradientError."""
    raise PackedGradientError(
        "linear: the gradient of a packed weight was asked for, which is a constant; pass the "
        "plain weight where it is trained"
    )


def tangent(
    x: Tensor,
    weight: Tensor,
    of_x: Tensor | None,
    of_weight: Tensor | None,
    of_bias: Tensor | None,
) -> Tensor | None:
    """Return the tangent of ``x @ weight.T + bias``; None of zeros.

    Args:
        x, weight: as the op takes them, the weight plain.
        of_x, of_weight, of_bias: their tangents, None for zeros.
    """
    found = None if of_x is None else product(of_x, [weight], "", of_bias)
    if of_weight is not None:
        moved = product(x, [of_weight], "", of_bias if found is None else None)
        found = moved if found is None else found + moved
    if found is None and of_bias is not None:
        # No view of the bias's tangent: torch would take the two for one tensor.
        found = of_bias.expand(*x.shape[:-1], weight.shape[-2]).clone()
    return found


def batched(
    info: Any,
    dims: tuple[Any, ...],
    x: Tensor,
    weight: list[Tensor],
    spec: str,
    bias: Tensor | None,
) -> tuple[Tensor, int]:
    """Compute a product with one more dimension, as torch.library.register_vmap takes it."""
    size = info.batch_size
    of_x, of_weight, _, of_bias = dims
    if spec and any(dim is not None for dim in of_weight):
        raise TransformError(
            "linear under torch.vmap: expected a packed weight that is the same for all, got one "
            "that is mapped over; map over plain weights"
        )
    x = x if of_x is None else x.movedim(of_x, 0)
    shared = bias if of_bias is None else None
    if of_weight[0] is None:
        out = _of_one_weight(x, of_x is not None, weight, spec, shared)
        if of_x is None:
            out = out.expand(size, *out.shape)
    else:
        out = _of_weights(size, x, of_x is not None, weight[0].movedim(of_weight[0], 0), shared)
    if bias is not None and of_bias is not None:
        each = bias.movedim(of_bias, 0)
        out = out + each.reshape(size, *[1] * (out.ndim - 2), each.shape[-1])
    return out, 0


def _of_one_weight(
    x: Tensor, mapped: bool, weight: list[Tensor], spec: str, bias: Tensor | None
) -> Tensor:
    if spec or weight[0].ndim == 2 or not mapped:
        return product(x, weight, spec, bias)
    # [V, B, M, K] by [B, N, K]: what is mapped over is more rows.
    count, batch, rows, depth = x.shape
    wide = x.transpose(0, 1).reshape(batch, count * rows, depth)
    out = product(wide, weight, "", bias)
    return out.reshape(batch, count, rows, out.shape[-1]).transpose(0, 1)


def _of_weights(size: int, x: Tensor, mapped: bool, weight: Tensor, bias: Tensor | None) -> Tensor:
    if not mapped:
        x = x.expand(size, *x.shape)
    shape = x.shape[:-1]
    if weight.ndim == 3:
        rows = x.reshape(size, math.prod(shape[1:]), x.shape[-1])
    else:
        rows, weight = x.flatten(0, 1), weight.flatten(0, 1)
    out = product(rows, [weight], "", bias)
    return out.reshape(*shape, out.shape[-1])
