"""Weights as the kernels take them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchyard_kernels.linear.contract import Packed, WeightSpec
from torchyard_kernels.linear.contract.quantised import BITS, groups_of, option

__all__ = ["group_of", "weight_arguments"]


def group_of(weight: Tensor | Packed) -> int:
    """Return how many products of a weight have a scale in common; 0 where all have."""
    if isinstance(weight, Packed) and weight.spec.format in BITS:
        return option(weight.spec, "group")
    return 0


def weight_arguments(weight: Tensor | Packed) -> tuple[tuple[Any, ...], int, dict[str, Any]]:
    """Return a weight as kernels take it, the scales of an output, and constants."""
    if not isinstance(weight, Packed):
        strides = weight.stride() if weight.ndim == 3 else (0, *weight.stride())
        constants = {"FORM": "plain", "GROUP": 0, "ZEROS": False}
        return (weight, weight, weight, *strides, 0, weight.shape[-2]), 1, constants
    spec: WeightSpec = weight.spec
    data = weight.tensors[0]
    if spec.format in BITS:
        _, scale, zero = weight.tensors
        form, zeros = spec.format, zero.shape[1] > 0
    else:
        scale, zero = data, data
        form, zeros = f"panels{data.shape[3]}", False
    constants = {"FORM": form, "GROUP": group_of(weight), "ZEROS": zeros}
    values = (data, scale, zero if zeros else data, 0, 0, 0, data.shape[1], spec.rows)
    return values, groups_of(spec) if spec.format in BITS else 1, constants
