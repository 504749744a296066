"""Checks of the arguments of linear, matmul and bmm."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_kernels.linear._weights.packed_weight import PackedWeight

__all__ = ["check_batches", "check_linear", "check_matmul"]

_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_linear(x: Tensor, weight: Tensor | PackedWeight, bias: Tensor | None) -> None:
    """Check the arguments of :func:`torchyard_kernels.linear`."""
    if not isinstance(weight, PackedWeight):
        arguments.tensor(
            "linear", "weight", weight, dims=(1, 2), dtypes=_DTYPES, shape="[N, K] or [K]"
        )
    arguments.tensor("linear", "x", x, dtypes=_DTYPES)
    depth = weight.shape[-1]
    if x.ndim == 0 or x.shape[-1] != depth:
        raise ValueError(
            f"linear: x: expected a last dimension of {depth}, as the weight "
            f"{list(weight.shape)} has, got {list(x.shape)}"
        )
    stored = weight.tensors[0] if isinstance(weight, PackedWeight) else weight
    _check_alike("linear", "weight", weight.dtype, stored.device, "x", x)
    if bias is None:
        return
    arguments.tensor("linear", "bias", bias, dtypes=_DTYPES)
    outputs = list(weight.shape[:-1])
    if list(bias.shape) != outputs:
        raise ValueError(f"linear: bias: expected {outputs}, got {list(bias.shape)}")
    _check_alike("linear", "bias", bias.dtype, bias.device, "x", x)


def check_batches(a: Tensor, b: Tensor) -> None:
    """Check the arguments of :func:`torchyard_kernels.bmm`."""
    arguments.tensor("bmm", "a", a, dims=3, shape="[B, M, K]")
    arguments.tensor("bmm", "b", b, dims=3, shape="[B, K, N]")
    check_matmul("bmm", a, b)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(
            f"bmm: b: expected [{a.shape[0]}, {a.shape[2]}, N] for a {list(a.shape)}, got "
            f"{list(b.shape)}"
        )


def check_matmul(function: str, a: Tensor, b: Tensor) -> None:
    """Check what matmul and bmm have in common: types, dtypes and devices."""
    arguments.tensor(function, "a", a, dtypes=_DTYPES)
    arguments.tensor(function, "b", b, dtypes=_DTYPES)
    _check_alike(function, "b", b.dtype, b.device, "a", a)


def _check_alike(
    function: str, name: str, dtype: torch.dtype, device: torch.device, like: str, tensor: Tensor
) -> None:
    if dtype != tensor.dtype:
        raise TypeError(
            f"{function}: {name}: expected the dtype of {like}, {tensor.dtype}, got {dtype}; "
            f"convert one"
        )
    if device != tensor.device:
        raise TypeError(
            f"{function}: {name}: expected the device of {like}, {tensor.device}, got {device}; "
            f"move one"
        )
