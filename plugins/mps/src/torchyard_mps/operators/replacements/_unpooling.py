"""max_unpool2d and max_unpool3d, by scattering."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from torchyard_mps.operators.replacements._indices import require_within
from torchyard_mps.operators.replacements._outputs import fill

__all__ = ["max_unpool2d", "max_unpool2d_out", "max_unpool3d", "max_unpool3d_out"]


def max_unpool2d(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return zeros with elements where max_pool2d found them.

    Args:
        self: ``[..., height, width]``.
        indices: int64 of its shape, among the places of an image of ``output_size``.
        output_size: height and width of the result.

    Raises:
        IndexError: an index is outside of the image.
        RuntimeError: shapes differ.
    """
    return _unpooled("max_unpool2d", self, indices, output_size)


def max_unpool2d_out(
    self: Tensor, indices: Tensor, output_size: Sequence[int], *, out: Tensor
) -> Tensor:
    """Give zeros with elements where max_pool2d found them."""
    return fill("max_unpool2d", out, max_unpool2d(self, indices, output_size))


def max_unpool3d(
    self: Tensor,
    indices: Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Return zeros with elements where max_pool3d found them.

    Args:
        self: ``[..., depth, height, width]``.
        indices: int64 of its shape, among the places of a volume of ``output_size``.
        output_size: depth, height and width of the result.
        stride: of the pooling, from 1; the result does not depend on it.
        padding: of the pooling; the result does not depend on it.

    Raises:
        IndexError: an index is outside of the volume.
        RuntimeError: shapes differ, or a stride is not positive.
    """
    if min(stride) < 1:
        raise RuntimeError(f"max_unpool3d: stride: expected 1 or more, got {list(stride)}")
    return _unpooled("max_unpool3d", self, indices, output_size)


def max_unpool3d_out(
    self: Tensor,
    indices: Tensor,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    *,
    out: Tensor,
) -> Tensor:
    """Give zeros with elements where max_pool3d found them."""
    return fill("max_unpool3d", out, max_unpool3d(self, indices, output_size, stride, padding))


def _unpooled(operator: str, x: Tensor, indices: Tensor, size: Sequence[int]) -> Tensor:
    dimensions = len(size)
    if x.dim() not in (dimensions + 1, dimensions + 2):
        raise RuntimeError(
            f"{operator}: input: expected {dimensions + 1} or {dimensions + 2} dimensions, "
            f"got {x.dim()}"
        )
    if indices.shape != x.shape:
        raise RuntimeError(
            f"{operator}: indices: expected {list(x.shape)}, the input's shape, "
            f"got {list(indices.shape)}"
        )
    require_within(operator, indices, 0, prod(size))
    lead = x.shape[:-dimensions]
    flat = x.new_zeros((*lead, prod(size)))
    flat.scatter_(-1, indices.flatten(-dimensions), x.flatten(-dimensions))
    return flat.view(*lead, *size)
