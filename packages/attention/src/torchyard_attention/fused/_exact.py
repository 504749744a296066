"""What computes a call whose hidden values are not finite, or for which a kernel has no place."""

from __future__ import annotations

import warnings
from typing import Final

import torch
from torch import Tensor

from torchyard import resolve
from torchyard_attention.contract import (
    BACKWARD,
    FORWARD,
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
    Backward,
    Forward,
    MaskKind,
    ScoreKind,
)

__all__ = ["exact_backward", "exact_forward", "finite"]

_EXACT: Final = "attention.tiled"


def finite(*tensors: Tensor) -> bool:
    """Return whether the sum of some tensors is finite; true while a graph is captured.

    The host waits for it, once, which it cannot during a capture.
    """
    if tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    sums = [tensor.sum(dtype=torch.float32) for tensor in tensors]
    return bool(torch.stack(sums).sum().isfinite())


def exact_forward(call: AttentionCall, *, instead: str) -> AttentionResult:
    """Compute ``attention/1`` by attention.tiled, which keeps hidden values out; warn of it.

    Args:
        call: the call.
        instead: the implementation that the warning names as one that needs no second way.
    """
    _warn("an output is not finite, which may come from a key that the mask hides", instead)
    forward: Forward = resolve(FORWARD, _request(call), use=_EXACT)
    return forward(call)


def exact_backward(
    call: AttentionCall,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    *,
    instead: str,
) -> AttentionGradients:
    """Compute ``attention_backward/1`` by attention.tiled; warn of it.

    Args:
        call, out, lse, grad_out, grad_lse: as a backward's.
        instead: the implementation that the warning names as one that needs no second way.
    """
    _warn(
        "a gradient is not finite, which may come from a key that the mask hides"
        if grad_lse is None
        else "the kernel takes no gradient of the lse",
        instead,
    )
    backward: Backward = resolve(BACKWARD, _request(call), use=_EXACT)
    return backward(call, out, lse, grad_out, grad_lse)


def _warn(reason: str, instead: str) -> None:
    """Say that another implementation than the chosen one computes a call, many times as slow."""
    warnings.warn(
        f"{reason}: {_EXACT} computes the call, which takes many times as long; "
        f"TORCHYARD_USE=attention={instead},attention_backward={instead} demands kernels that need "
        f"no second way",
        RuntimeWarning,
        stacklevel=3,
    )


def _request(call: AttentionCall) -> AttentionRequest:
    query, key, value = call.query, call.key, call.value
    return AttentionRequest(
        device=query.device.type,
        dtype=str(query.dtype).removeprefix("torch."),
        batch=query.shape[0],
        q_heads=query.shape[1],
        kv_heads=key.shape[1],
        q_length=query.shape[2],
        kv_length=key.shape[2],
        head_dim=query.shape[3],
        value_dim=value.shape[3],
        score=ScoreKind.NONE if call.score_mod is None else ScoreKind.POINTWISE,
        mask=MaskKind.NONE if call.mask is None else MaskKind.BLOCKS,
        block_size=(0, 0) if call.mask is None else call.mask.block_size,
        lse=call.lse,
        grad=call.grad,
        unit_stride=all(tensor.stride(-1) == 1 for tensor in (query, key, value)),
        captured_grad=call.captured_grad,
    )
