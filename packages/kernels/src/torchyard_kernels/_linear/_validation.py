"""What is checked of a call before anything is computed."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels._linear._packed_weight import PackedWeight

__all__ = ["check_batches", "check_linear", "check_matmul"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_linear(x: Tensor, weight: Tensor | PackedWeight, bias: Tensor | None) -> None:
    """Check the arguments of :func:`torchyard_kernels.linear`."""
    if not isinstance(weight, PackedWeight):
        _check_tensor("linear", "weight", weight)
        if weight.ndim != 2:
            raise ValueError(
                f"linear: weight: expected two dimensions [N, K], got {list(weight.shape)}"
            )
    _check_tensor("linear", "x", x)
    outputs, depth = weight.shape
    if x.ndim == 0 or x.shape[-1] != depth:
        raise ValueError(
            f"linear: x: expected a last dimension of {depth}, as the weight "
            f"{list(weight.shape)} has, got {list(x.shape)}"
        )
    held = weight.tensors[0] if isinstance(weight, PackedWeight) else weight
    _check_alike("linear", "weight", weight.dtype, held.device, "x", x)
    if bias is None:
        return
    _check_tensor("linear", "bias", bias)
    if bias.shape != (outputs,):
        raise ValueError(f"linear: bias: expected [{outputs}], got {list(bias.shape)}")
    _check_alike("linear", "bias", bias.dtype, bias.device, "x", x)


def check_batches(a: Tensor, b: Tensor) -> None:
    """Check the arguments of :func:`torchyard_kernels.bmm`."""
    check_matmul("bmm", a, b)
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(
            f"bmm: expected [B, M, K] and [B, K, N], got {list(a.shape)} and {list(b.shape)}"
        )


def check_matmul(function: str, a: Tensor, b: Tensor) -> None:
    """Check what matmul and bmm have in common: types, dtypes and devices."""
    _check_tensor(function, "a", a)
    _check_tensor(function, "b", b)
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


def _check_tensor(function: str, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{function}: {name}: expected a tensor, got {type(value).__name__}")
    if value.dtype not in _DTYPES:
        raise TypeError(
            f"{function}: {name}: expected float16, bfloat16, float32 or float64, got {value.dtype}"
        )
    if value.layout != torch.strided:
        raise TypeError(
            f"{function}: {name}: expected a dense tensor, got {value.layout}; convert it"
        )
