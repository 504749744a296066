"""What kernels call and Triton 3.3 lacks, the newest `triton-xpu` of PyPI."""

from __future__ import annotations

import inspect

import triton
import triton.language as tl

__all__ = ["add_missing"]


def add_missing() -> None:
    """Give ``tl.histogram`` its mask, which Triton has from 3.4 on; nothing where it is there."""
    if "mask" in inspect.signature(tl.histogram).parameters:
        return
    tl.histogram = _histogram


_unmasked = tl.histogram


@triton.jit
def _histogram(x, bins: tl.constexpr, mask=None):
    counts = _unmasked(tl.where(mask, x, 0), bins)
    hidden = tl.sum(tl.where(mask, 0, 1))
    return counts - tl.where(tl.arange(0, bins) == 0, hidden, 0)
