"""Addresses of a packed weight's tensors, of which native code reads as much as the spec says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from torchyard_cpu._addresses import address
from torchyard_kernels.linear.contract import WeightSpec, panel_shape
from torchyard_kernels.linear.contract.quantised import (
    BITS,
    QUANTISED_COLUMNS,
    data_shape,
    groups_of,
    option,
)

__all__ = ["packed_addresses", "packed_bytes"]


def packed_addresses(spec: WeightSpec, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the addresses of a packed weight's tensors, which may have been replaced since.

    A tensor that the kernel does not read, the zeros of symmetric weights, has address 0.

    Raises:
        ValueError: one has fewer bytes than the kernel will read for the spec.
    """
    return tuple(
        [
            address(tensor, name, least) if least else 0
            for tensor, (name, least) in zip(tensors, packed_bytes(spec), strict=True)
        ]
    )


@lru_cache(maxsize=1024)
def packed_bytes(spec: WeightSpec) -> tuple[tuple[str, int], ...]:
    """Return the names of a packed weight's tensors, and how many bytes are read of each."""
    if spec.format not in BITS:
        item = torch.finfo(getattr(torch, spec.dtype)).bits // 8
        shape = panel_shape(spec.rows, spec.columns, 2 if spec.dtype == "bfloat16" else 1)
        return (("weight: data", math.prod(shape) * item),)
    shape = data_shape(spec)
    scales = shape[0] * groups_of(spec) * QUANTISED_COLUMNS
    return (
        ("weight: data", math.prod(shape)),
        ("weight: scale", scales * (2 if option(spec, "group") else 4)),
        ("weight: zero", scales if option(spec, "asymmetric") else 0),
    )
