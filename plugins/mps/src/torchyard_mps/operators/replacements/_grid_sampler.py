"""grid_sampler_3d and its backward, by gathering and scattering.

A sample is the sum over the eight elements around its place, each weighted by the product over axes
of 1 minus its distance. Derivatives by the place are those of the weights; by the grid, those times
the slope of the place: what scaling does, and padding beyond the volume.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import torch
from torch import Tensor

__all__ = ["grid_sampler_3d", "grid_sampler_3d_backward"]

# torch's numbers of modes, of aten/src/ATen/native/GridSamplerUtils.h.
_NEAREST: Final = 1
_BICUBIC: Final = 2
_BORDER: Final = 1
_REFLECTION: Final = 2


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where samples are along an axis.

    Attributes:
        size: elements of the volume along it.
        place: ``[N, 1, P]`` in elements, of P samples.
        slope: ``[N, 1, P]``, the derivative of the place by the grid.
    """

    size: int
    place: Tensor
    slope: Tensor


@dataclass(frozen=True, slots=True)
class _Corner:
    """An element of the volume near each sample; all ``[N, 1, P]``.

    Attributes:
        index: int64, among the elements of a channel; 0 outside.
        inside: whether there is such an element.
        weight: of the element.
        slopes: derivatives of the weight by x, y and z.
    """

    index: Tensor
    inside: Tensor
    weight: Tensor
    slopes: tuple[Tensor, ...]


def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Return samples of volumes; 0 where a place is NaN.

    Args:
        input: ``[N, C, D, H, W]``, floating.
        grid: ``[N, d, h, w, 3]``, of input's dtype: x, y and z of each sample, of -1 to 1.
        interpolation_mode: 0: linear; 1: nearest.
        padding_mode: what is beyond: 0: zeros; 1: the border; 2: the reflection.
        align_corners: whether -1 and 1 are the centres of the outermost elements.

    Returns:
        ``[N, C, d, h, w]``.

    Raises:
        RuntimeError: shapes or modes do not fit.
    """
    _require(input, grid, interpolation_mode)
    axes = _axes(input, grid, padding_mode, align_corners)
    flat = input.flatten(2).to(axes[0].place.dtype)
    total = flat.new_zeros(*flat.shape[:2], axes[0].place.shape[2])
    for corner in _corners(axes, interpolation_mode):
        total += torch.where(corner.inside, _elements(flat, corner) * corner.weight, 0)
    return total.to(input.dtype).view(*input.shape[:2], *grid.shape[1:4])


def grid_sampler_3d_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of input and grid; the sum of an element's samples has no fixed order.

    Args:
        grad_output: ``[N, C, d, h, w]``, the cotangent.
        input: as the forward's.
        grid: as the forward's.
        interpolation_mode: as the forward's.
        padding_mode: as the forward's.
        align_corners: as the forward's.
        output_mask: of both gradients, whether it is wanted.

    Returns:
        The gradients, of input's and grid's shapes; None where it is not wanted.
    """
    _require(input, grid, interpolation_mode)
    axes = _axes(input, grid, padding_mode, align_corners)
    of_values, of_places = output_mask
    flat = input.flatten(2).to(axes[0].place.dtype)
    grad = grad_output.flatten(2).to(flat.dtype)
    values = torch.zeros_like(flat)
    places = [torch.zeros_like(axis.place) for axis in axes]
    for corner in _corners(axes, interpolation_mode):
        if of_values:
            part = torch.where(corner.inside, grad * corner.weight, 0)
            values.scatter_add_(2, corner.index.expand_as(part), part)
        if of_places:
            inner = (grad * _elements(flat, corner)).sum(1, keepdim=True)
            for place, slope in zip(places, corner.slopes, strict=True):
                place += torch.where(corner.inside, inner * slope, 0)
    parts = [place * axis.slope for place, axis in zip(places, axes, strict=True)]
    return (
        values.to(input.dtype).view(input.shape) if of_values else None,
        torch.cat(parts, 1).mT.to(grid.dtype).reshape(grid.shape) if of_places else None,
    )


def _require(input: Tensor, grid: Tensor, interpolation_mode: int) -> None:
    if input.dim() != 5 or grid.dim() != 5:
        raise RuntimeError(
            f"grid_sampler_3d: input and grid: expected 5 dimensions, got {input.dim()} and "
            f"{grid.dim()}"
        )
    if grid.shape[0] != input.shape[0] or grid.shape[4] != 3:
        raise RuntimeError(
            f"grid_sampler_3d: grid: expected [{input.shape[0]}, d, h, w, 3], "
            f"got {list(grid.shape)}"
        )
    if not all(input.shape[2:]):
        raise RuntimeError(
            f"grid_sampler_3d: input: expected a volume with elements, got {list(input.shape)}"
        )
    if interpolation_mode == _BICUBIC:
        raise RuntimeError("grid_sampler_3d: mode: expected 'bilinear' or 'nearest', got 'bicubic'")


def _axes(input: Tensor, grid: Tensor, padding_mode: int, align_corners: bool) -> list[_Axis]:
    """Return the axes in the order of the grid: x, y, z."""
    dtype = torch.promote_types(input.dtype, torch.float32)
    found = []
    for axis, size in enumerate(reversed(input.shape[2:])):
        given = grid[..., axis].flatten(1).unsqueeze(1).to(dtype)
        span = size - 1 if align_corners else size
        place = (given + 1) * (span / 2) - (0.0 if align_corners else 0.5)
        slope = torch.full_like(place, span / 2)
        if padding_mode == _REFLECTION:
            place, slope = _reflected(place, slope, size, align_corners)
        if padding_mode in (_BORDER, _REFLECTION):
            within = (place > 0) & (place < size - 1)
            place, slope = place.clamp(0, size - 1), torch.where(within, slope, 0)
        found.append(_Axis(size, place, slope))
    return found


def _reflected(
    place: Tensor, slope: Tensor, size: int, align_corners: bool
) -> tuple[Tensor, Tensor]:
    """Reflect places at the centres of the outermost elements, or at their edges."""
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if not span:
        return torch.zeros_like(place), torch.zeros_like(slope)
    offset = place - low
    sign = torch.where(offset < 0, -1.0, 1.0)
    distance = offset.abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    odd = turns.remainder(2) == 1
    return (
        torch.where(odd, span - rest, rest) + low,
        slope * torch.where(odd, -sign, sign).to(slope.dtype),
    )


def _corners(axes: Sequence[_Axis], interpolation_mode: int) -> Iterator[_Corner]:
    if interpolation_mode == _NEAREST:
        # Halves go to the even element, as in torch.
        index, inside = _index(axes, [axis.place.round() for axis in axes])
        one, zero = torch.ones_like(axes[0].place), torch.zeros_like(axes[0].place)
        yield _Corner(index, inside, one, (zero,) * len(axes))
        return
    bases = [axis.place.floor() for axis in axes]
    beyond = [axis.place - base for axis, base in zip(axes, bases, strict=True)]
    for bits in product((0, 1), repeat=len(axes)):
        near = [part if bit else 1 - part for part, bit in zip(beyond, bits, strict=True)]
        x, y, z = near
        signs = [1 if bit else -1 for bit in bits]
        slopes = (y * z * signs[0], x * z * signs[1], x * y * signs[2])
        index, inside = _index(axes, [base + bit for base, bit in zip(bases, bits, strict=True)])
        yield _Corner(index, inside, x * y * z, slopes)


def _index(axes: Sequence[_Axis], places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return indices among a channel's elements, 0 outside, and which places are inside."""
    inside = torch.ones_like(places[0], dtype=torch.bool)
    for axis, place in zip(axes, places, strict=True):
        # NaN is outside.
        inside &= (place >= 0) & (place < axis.size)
    index, stride = torch.zeros_like(places[0], dtype=torch.int64), 1
    for axis, place in zip(axes, places, strict=True):
        # Replaced before it is converted: no integer is NaN.
        index += torch.where(inside, place, 0).long() * stride
        stride *= axis.size
    return index, inside


def _elements(flat: Tensor, corner: _Corner) -> Tensor:
    """Return the elements of all channels at a corner: ``[N, C, P]``."""
    return flat.gather(2, corner.index.expand(-1, flat.shape[1], -1))
