"""linear, matmul and bmm, the functions that users call."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from torchyard.torch_compat import is_autocast_enabled_anywhere
from torchyard_kernels._autocast import cast, is_cast
from torchyard_kernels.linear._functions.function import required
from torchyard_kernels.linear._functions.recordings import (
    EPILOGUES,
    GATED_EPILOGUES,
    PROLOGUES,
    recorded,
)
from torchyard_kernels.linear._ops import FAST_PATH, compute
from torchyard_kernels.linear._tuning import active
from torchyard_kernels.linear._validation import check_batches, check_linear, check_matmul
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear.contract import PLAIN_WEIGHT, SECOND_FACTOR, LinearCall
from torchyard_programs import is_transformed

__all__ = ["bmm", "linear", "matmul"]

_NO_FUNCTION: Final[tuple[str, tuple[Tensor, ...]]] = "", ()

_try_call = FAST_PATH.try_call


def linear(
    x: Tensor,
    weight: Tensor | PackedWeight,
    bias: Tensor | None = None,
    *,
    prologue: Callable[[Tensor], Tensor] | None = None,
    epilogue: Callable[..., Tensor] | None = None,
) -> Tensor:
    """Compute ``epilogue(prologue(x) @ weight.T + bias)``; sums are float32.

    Args:
        x: [..., K], float16, bfloat16, float32 or float64, any strides.
        weight: [N, K], x's dtype, any strides; or packed, see :class:`PackedWeight`; or [K], whose
            one output has no dimension.
        bias: [N], or [] where the weight is [K], x's dtype.
        prologue: a pointwise function of x, such as the scale of an RMSNorm.
        epilogue: a pointwise function of the result [..., N]; or one of two required parameters
            ``(gate, up)``, which are the result's halves [..., N / 2].

    Returns:
        [..., N] (or what the epilogue makes of it), contiguous; [...] where the weight is [K].

    Functions are recorded as programs (``torchyard_programs``) and run while a tile of the result
    is in a cache, if the chosen implementation can; see ``torchyard explain``. Where gradients are
    recorded, in forward mode and under a transform of torch.func they run as torch's operators
    before and after the product.

    Differentiable in x, bias, a plain weight and what functions capture, any number of times; a
    packed weight is a constant.

    Under :class:`torch.autocast` x, the weight and the bias are cast as by
    :func:`torch.nn.functional.linear`; where the weight is packed, the others to its dtype.

    Raises:
        TypeError: dtypes that differ or are none of those; devices that differ.
        ValueError: shapes that do not fit.
        ProgramError: a function does something that cannot be recorded.
        PackedGradientError: the gradient of a packed weight was asked for.
    """
    # The fast path computes nothing where autocast is on.
    if not is_dynamo_compiling() and active() is None:
        found: Tensor | None
        if prologue is not None or epilogue is not None:
            found = _try_fused(x, weight, bias, prologue, epilogue)
        elif type(weight) is PackedWeight:
            found = _try_packed(x, weight, bias)
        else:
            found = _try_call(None, x, weight, PLAIN_WEIGHT, bias)
        if found is not None:
            return found
    if (is_dynamo_compiling() or is_autocast_enabled_anywhere()) and is_cast(x):
        packed = isinstance(weight, PackedWeight)
        dtype = weight.dtype if packed else torch.get_autocast_dtype(x.device.type)
        x, weight, bias = cast(dtype, x, weight, bias)
        if prologue is not None or epilogue is not None:
            # The functions are part of the product: they compute in what they are given.
            with torch.autocast(x.device.type, enabled=False):
                return linear(x, weight, bias, prologue=prologue, epilogue=epilogue)
    check_linear(x, weight, bias)
    if isinstance(weight, Tensor) and weight.ndim == 1:
        rows, numbers = weight[None], None if bias is None else bias[None]
        return linear(x, rows, numbers, prologue=prologue, epilogue=epilogue).squeeze(-1)
    call = LinearCall(x, weight.packed if isinstance(weight, PackedWeight) else weight, bias)
    if prologue is None and epilogue is None:
        return compute(call)
    gated = epilogue is not None and required(epilogue) == 2
    if gated and weight.shape[0] % 2:
        raise ValueError(
            f"linear: epilogue: two parameters take the halves of an even number of outputs, got "
            f"{weight.shape[0]}"
        )
    leaves = call.tensors
    fused = replace(
        call,
        prologue=None if prologue is None else recorded(prologue, "prologue", False, x, leaves),
        epilogue=None if epilogue is None else recorded(epilogue, "epilogue", gated, x, leaves),
    )
    needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in fused.tensors)
    if not needs_gradient and not is_transformed():
        return compute(fused)
    if prologue is not None:
        call = replace(call, x=prologue(x).to(x.dtype))
    y = compute(call)
    if epilogue is None:
        return y
    return epilogue(*y.chunk(2, -1)) if gated else epilogue(y)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Compute the product of two tensors as :func:`torch.matmul` does; sums are float32.

    Args:
        a: [..., M, K] or [K]; b: [..., K, N] or [K]: one of float16, bfloat16, float32, float64.

    Returns:
        [..., M, N], without what a tensor of one dimension lacks; batch dimensions broadcast.

    Follows :class:`torch.autocast`, as torch's does.

    Raises:
        TypeError: dtypes that differ or are none of those; devices that differ.
        ValueError: shapes that do not fit.
    """
    if not is_dynamo_compiling() and active() is None:
        found: Tensor | None = _try_call(None, a, b, SECOND_FACTOR, None)
        if found is not None:
            return found
    if (is_dynamo_compiling() or is_autocast_enabled_anywhere()) and is_cast(a):
        a, b = cast(torch.get_autocast_dtype(a.device.type), a, b)
    check_matmul("matmul", a, b)
    depth = b.shape[-2] if b.ndim > 1 else b.numel()
    if a.ndim == 0:
        raise ValueError("matmul: a: expected [..., M, K] or [K], got shape []")
    if b.ndim == 0 or a.shape[-1] != depth:
        raise ValueError(
            f"matmul: b: expected [..., {a.shape[-1]}, N] or [{a.shape[-1]}] for a "
            f"{list(a.shape)}, got {list(b.shape)}"
        )
    if b.ndim == 1:
        return compute(LinearCall(a, b[None])).squeeze(-1)
    if a.ndim == 1:
        return matmul(a[None], b).squeeze(-2)
    if b.ndim == 2:
        return compute(LinearCall(a, b.mT))
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    except RuntimeError:
        raise ValueError(
            f"matmul: b: expected batch dimensions that broadcast with a's {list(a.shape)}, got "
            f"{list(b.shape)}"
        ) from None
    count = math.prod(batch)
    left = a.expand(*batch, *a.shape[-2:]).reshape(count, *a.shape[-2:])
    right = b.expand(*batch, *b.shape[-2:]).reshape(count, *b.shape[-2:])
    return compute(LinearCall(left, right.mT)).reshape(*batch, a.shape[-2], b.shape[-1])


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Compute a[i] @ b[i] for each i, as :func:`torch.bmm` does; sums are float32.

    Args:
        a: [B, M, K]; b: [B, K, N]: one of float16, bfloat16, float32, float64, any strides.

    Returns:
        [B, M, N], contiguous.

    Follows :class:`torch.autocast`, as torch's does.

    Raises:
        TypeError: dtypes that differ or are none of those; devices that differ.
        ValueError: shapes that do not fit.
    """
    if not is_dynamo_compiling() and active() is None and _are_batches(a, b):
        found: Tensor | None = _try_call(None, a, b, SECOND_FACTOR, None)
        if found is not None:
            return found
    if (is_dynamo_compiling() or is_autocast_enabled_anywhere()) and is_cast(a):
        a, b = cast(torch.get_autocast_dtype(a.device.type), a, b)
    check_batches(a, b)
    return compute(LinearCall(a, b.mT))


def _are_batches(a: Tensor, b: Tensor) -> bool:
    return type(a) is Tensor and type(b) is Tensor and a.ndim == 3 and b.ndim == 3


def _try_packed(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor | None:
    # A module looks through its parameters, buffers and modules for an attribute, which costs as
    # much as the rest.
    buffers: Any = weight._buffers
    found: Tensor | None
    if weight.format == "panels":
        found = _try_call(None, x, buffers.get("data"), weight.shape, bias)
    else:
        tensors = tuple([buffers.get(name) for name in weight.names])
        found = _try_call(weight.spec_text, x, tensors, None, bias)
    return found


def _try_fused(
    x: Tensor,
    weight: Tensor | PackedWeight,
    bias: Tensor | None,
    prologue: Callable[[Tensor], Tensor] | None,
    epilogue: Callable[..., Tensor] | None,
) -> Tensor | None:
    if type(x) is not Tensor:
        return None
    data: Any = weight
    form: tuple[int, ...] | int = PLAIN_WEIGHT
    if type(weight) is PackedWeight:
        if weight.format != "panels":
            return None
        data, form = weight._buffers["data"], weight.shape
    before = after = _NO_FUNCTION
    gated = False
    dtype = x.dtype
    if prologue is not None:
        recording = PROLOGUES.cached_recording(prologue, dtype)
        if recording is None:
            return None
        before = recording
    if epilogue is not None:
        gated = required(epilogue) == 2
        recording = (GATED_EPILOGUES if gated else EPILOGUES).cached_recording(epilogue, dtype)
        if recording is None:
            return None
        after = recording
    found: Tensor | None = _try_call(
        (before[0], after[0], gated), x, data, form, bias, before[1], after[1]
    )
    return found
