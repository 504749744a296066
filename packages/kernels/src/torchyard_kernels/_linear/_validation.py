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
    held = weight if isinstance(weight, Tensor) else weight.get_buffer("data")
    _check_device("linear", "weight", held, x)
    outputs, depth = weight.shape
    if x.ndim == 0 or x.shape[-1] != depth:
        raise ValueError(
            f"linear: x: expected a last dimension of {depth}, as the weight "
            f"{list(weight.shape)} has, got {list(x.shape)}"
        )
    if x.dtype != weight.dtype:
        raise TypeError(
            f"linear: weight: expected the dtype of x, {x.dtype}, got {weight.dtype}; convert one"
        )
    if bias is None:
        return
    _check_tensor("linear", "bias", bias)
    if bias.shape != (outputs,):
        raise ValueError(f"linear: bias: expected [{outputs}], got {list(bias.shape)}")
    if bias.dtype != x.dtype:
        raise TypeError(f"linear: bias: expected the dtype of x, {x.dtype}, got {bias.dtype}")
    _check_device("linear", "bias", bias, x)


def check_batches(a: Tensor, b: Tensor) -> None:
    """Check the arguments of :func:`torchyard_kernels.bmm`."""
    check_matmul("bmm", a, b)
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(
            f"bmm: expected [B, M, K] and [B, K, N], got {list(a.shape)} and {list(b.shape)}"
        )


def check_matmul(function: str, a: Tensor, b: Tensor) -> None:
    """Check what matmul and bmm have in common: types and dtypes."""
    _check_tensor(function, "a", a)
    _check_tensor(function, "b", b)
    if a.dtype != b.dtype:
        raise TypeError(f"{function}: b: expected the dtype of a, {a.dtype}, got {b.dtype}")
    _check_device(function, "b", b, a)


def _check_tensor(function: str, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{function}: {name}: expected a tensor, got {type(value).__name__}")
    if value.dtype not in _DTYPES:
        raise TypeError(
            f"{function}: {name}: expected float16, bfloat16, float32 or float64, got {value.dtype}"
        )


def _check_device(function: str, name: str, tensor: Tensor, first: Tensor) -> None:
    if tensor.device != first.device:
        raise ValueError(
            f"{function}: {name}: expected it on {first.device}, got {tensor.device}; move one"
        )
