"""Rounding of weights and activations to a few bits, in float32 or float64."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Codes", "dequantise", "quantise", "round_rows"]


class Codes(NamedTuple):
    """A weight as codes of a few bits.

    Attributes:
        codes: uint8 [N, K].
        scale: [N, G]: float32 where there are no groups, else bfloat16.
        zero: uint8 [N, G], the code of 0; None: the middle code.
    """

    codes: Tensor
    scale: Tensor
    zero: Tensor | None


def quantise(weight: Tensor, bits: int, group: int, *, asymmetric: bool = False) -> Codes:
    """Round a weight to codes; each number is at most half a scale from its code's value.

    A symmetric group of 8 bits has the codes -127 .. 127, and 127 is its largest magnitude. One of
    4 bits has -8 .. 7, and its largest magnitude is 7.5 scales, so that the error of the largest
    number is half a scale and all scales are smaller than with a largest magnitude of 7. Numbers
    that are exactly the values of some codes of 4 bits get these codes. An asymmetric group ranges
    from its least to its greatest number, 0 included, so that 0 is exact.

    Args:
        weight: [N, K], finite; computed in float64 where it is float64, else in float32.
        bits: 8 or 4.
        group: consecutive products with a common scale; 0: all of an output.
        asymmetric: whether each group has its own code of 0.
    """
    rows, columns = weight.shape
    size = group or max(columns, 1)
    groups = -(-columns // size) if group else 1
    wide = weight.to(torch.float64 if weight.dtype == torch.float64 else torch.float32)
    padded = torch.nn.functional.pad(wide, (0, groups * size - columns))
    grouped = padded.reshape(rows, groups, size)
    most = (1 << bits) - 1
    if asymmetric:
        low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
        exact = (high - low) / most
    elif bits == 8:
        exact = grouped.abs().amax(-1) / 127
    else:
        exact = grouped.abs().amax(-1) / 7.5
        on_grid = _scale_of_codes(grouped, torch.finfo(weight.dtype).eps / 2)
        exact = exact if on_grid is None else on_grid.to(exact.dtype)
    scale = _bfloat16_above(exact) if group else exact.float()
    # A group of zeros has the scale 0, so that every code has the value 0.
    divisor = torch.where(scale == 0, 1, scale.to(wide.dtype))
    zero = None
    middle: Tensor | int = 1 << (bits - 1)
    if asymmetric:
        zero = (-low / divisor).round().clamp(0, most)
        middle = zero[..., None]
    least = 1 if bits == 8 and not asymmetric else 0
    codes = ((grouped / divisor[..., None]).round() + middle).clamp(least, most)
    kept = codes.to(torch.uint8).reshape(rows, -1)[:, :columns]
    return Codes(kept, scale, None if zero is None else zero.to(torch.uint8))


def dequantise(codes: Codes, bits: int, group: int, dtype: torch.dtype) -> Tensor:
    """Return the weight [N, K] of some codes, computed in float32 or wider."""
    rows, columns = codes.codes.shape
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    size = group or max(columns, 1)
    groups = codes.scale.shape[1]
    padded = torch.nn.functional.pad(codes.codes, (0, groups * size - columns))
    signed = padded.to(wide).reshape(rows, groups, size)
    middle = 1 << (bits - 1) if codes.zero is None else codes.zero.to(wide)[..., None]
    weight = (signed - middle) * codes.scale.to(wide)[..., None]
    return weight.reshape(rows, -1)[:, :columns].to(dtype)


def round_rows(x: Tensor) -> Tensor:
    """Return x [..., K] with each row rounded to 8 bits, in x's dtype.

    The codes are -127 .. 127, and 127 is the row's largest magnitude; the error is at most half of
    a 127th of it. A row with an infinity or a NaN becomes NaN.
    """
    if x.shape[-1] == 0:
        return x
    most = x.abs().amax(-1, keepdim=True)
    # 127 over a smaller number overflows in float32.
    usable = most >= 2.0**-119
    codes = torch.where(usable, (x * (127 / most)).round(), 0)
    return torch.where(most.isfinite(), codes * (most / 127), torch.nan)


def _scale_of_codes(grouped: Tensor, eps: float) -> Tensor | None:
    """Return the scales [N, G] of symmetric codes of 4 bits whose values are exactly these numbers.

    None where there are none, as for any weight that was not rounded before.

    Args:
        grouped: the numbers [N, G, size].
        eps: the largest relative difference between a number and its code's value.
    """
    # The first groups nearly always decide, at a fraction of the work.
    for part in (grouped[:, :1], grouped):
        largest = part.abs().amax(-1)
        found = torch.zeros_like(largest)
        fits = largest == 0
        for most, last in itertools.product((7, 8), (0, 1, -1)):
            near = (largest / most).to(torch.bfloat16)
            # The largest number may have been rounded: the scale is then a neighbour.
            scale = (near.view(torch.int16) + last).view(torch.bfloat16).to(part.dtype)
            divisor = torch.where(scale == 0, 1, scale)[..., None]
            codes = (part / divisor).round()
            exact = ((codes * divisor - part).abs() <= eps * part.abs()).all(-1)
            exact &= (codes.amin(-1) >= -8) & (codes.amax(-1) <= 7)
            found = torch.where(exact & ~fits, scale, found)
            fits |= exact
        if not fits.all():
            return None
    return found


def _bfloat16_above(scale: Tensor) -> Tensor:
    """Return the least bfloat16 that is not below each of some numbers, which are not negative."""
    near = scale.to(torch.bfloat16)
    above = (near.view(torch.int16) + 1).view(torch.bfloat16)
    return torch.where(near.to(scale.dtype) < scale, above, near)
