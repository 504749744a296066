"""attention.sdpa: torch's scaled_dot_product_attention, where it satisfies the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torchyard import Platform, ReasonCode, Verdict
from torchyard_attention.contract import (
    AttentionCall,
    AttentionGradients,
    AttentionRequest,
    AttentionResult,
    Backward,
    Forward,
    MaskKind,
    ScoreKind,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["load", "load_backward", "supports", "supports_backward"]

_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")
# Up to here a group's query heads are folded into rows: each key is then read once per key head,
# which halves the time of decoding (torch 2.13, Zen 5, Hq 32, Hkv 8, Sk 4096); from a few tens of
# rows on there is nothing to win.
_FOLD_ROWS: Final = 16


def supports(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept plain and causal attention, with what torch returns of it on the device."""
    if request.device != "cpu":
        return _supports_elsewhere(request)
    return _supports_on_cpu(request)


def supports_backward(request: AttentionRequest, platform: Platform) -> Verdict:
    """Accept plain and causal attention on cpu, whose backward op takes a natural-log lse."""
    if request.device != "cpu":
        return Verdict.no(
            ReasonCode.GRAD,
            f"takes the lse of other implementations on cpu alone, got device {request.device}",
            "use attention.tiled",
        )
    return _supports_on_cpu(request)


def _supports_anywhere(request: AttentionRequest) -> Verdict:
    if request.dropout:
        return Verdict.no(
            ReasonCode.DROPOUT,
            "torch's kernels drop weights by a mask of their own, or none",
            "use attention.tiled",
        )
    if request.score is not ScoreKind.NONE:
        return Verdict.no(
            ReasonCode.SCORE_MOD,
            f"computes unmodified scores, got a {request.score} score_mod",
            "leave score_mod out, or use attention.tiled",
        )
    if request.mask is MaskKind.BLOCKS:
        return Verdict.no(
            ReasonCode.MASK,
            "knows no mask but the causal one, and would compute every block of another",
            "use attention.tiled",
        )
    if request.page_size and request.batch != 1:
        return Verdict.no(
            ReasonCode.LAYOUT,
            f"knows one length for all keys, got pages of {request.batch} sequences",
            "use attention.tiled",
        )
    if request.max_scores:
        return Verdict.no(ReasonCode.OUTPUT, "does not return max_scores", "use attention.tiled")
    if request.dtype not in _DTYPES:
        return Verdict.no(
            ReasonCode.DTYPE,
            f"computes {', '.join(_DTYPES)}; got {request.dtype}",
            "cast the inputs",
        )
    sizes = {
        "batch": request.batch,
        "q_length": request.q_length,
        "kv_length": request.kv_length,
        "head_dim": request.head_dim,
        "value_dim": request.value_dim,
    }
    for name, size in sizes.items():
        if size == 0:
            return Verdict.no(
                ReasonCode.SHAPE, f"torch's kernel divides by {name}, got 0", "use attention.tiled"
            )
    return Verdict.yes("torch.nn.functional.scaled_dot_product_attention")


def _supports_on_cpu(request: AttentionRequest) -> Verdict:
    if request.head_dim != request.value_dim:
        return Verdict.no(
            ReasonCode.HEAD_DIM,
            f"torch's fused kernel on cpu needs value_dim = head_dim, got {request.value_dim} and "
            f"{request.head_dim}",
            "use attention.tiled",
        )
    return _supports_anywhere(request)


def _supports_elsewhere(request: AttentionRequest) -> Verdict:
    if request.lse or request.grad:
        return Verdict.no(
            ReasonCode.OUTPUT,
            f"torch returns a natural-log lse on cpu alone, got device {request.device}",
            "use attention.tiled",
        )
    if request.dtype == "float64":
        return Verdict.no(
            ReasonCode.DTYPE,
            f"torch has no fused kernel for float64 on {request.device}",
            "use attention.tiled",
        )
    return _supports_anywhere(request)


def load() -> Forward:
    """Return the forward."""
    return _forward


def load_backward() -> Backward:
    """Return the backward."""
    return _backward


def _forward(call: AttentionCall) -> AttentionResult:
    import torch

    with torch.no_grad():
        on_cpu = call.query.device.type == "cpu"
        out, lse = _fused_on_cpu(call) if on_cpu else (_functional(call), None)
        # torch multiplies hidden values by 0, which lets NaN and inf through.
        if call.mask is not None and not _finite(out):
            from torchyard_attention.implementations._tiled_forward import tiled_forward

            return tiled_forward(call)
        return AttentionResult(
            out.contiguous(), lse.contiguous() if call.lse and lse is not None else None
        )


def _fused_on_cpu(call: AttentionCall) -> tuple[Tensor, Tensor]:
    """Return out and lse of the op behind scaled_dot_product_attention on cpu."""
    from torchyard_attention._torch_compat import fused_attention_on_cpu

    causal = call.mask is not None
    query, key, value = (_unit_stride(t) for t in (call.query, call.key, call.value))
    batch, q_heads, q_length, head_dim = query.shape
    kv_heads = key.shape[1]
    fold = not causal and q_heads != kv_heads and q_length <= _FOLD_ROWS
    if fold:
        query = query.reshape(batch, kv_heads, -1, head_dim)
    out, lse = fused_attention_on_cpu(query, key, value, causal=causal, scale=call.scale)
    if fold:
        out = out.reshape(batch, q_heads, q_length, head_dim)
        lse = lse.reshape(batch, q_heads, q_length)
    return out, lse


def _functional(call: AttentionCall) -> Tensor:
    import torch

    result: Tensor = torch.nn.functional.scaled_dot_product_attention(
        call.query,
        call.key,
        call.value,
        is_causal=call.mask is not None,
        scale=call.scale,
        enable_gqa=call.query.shape[1] != call.key.shape[1],
    )
    return result


def _backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    import torch

    from torchyard_attention._torch_compat import fused_gradients_on_cpu
    from torchyard_attention.implementations._tiled_backward import tiled_backward

    if grad_lse is not None:
        # The op has no place for it.
        return tiled_backward(call, out, lse, grad_out, grad_lse)
    with torch.no_grad():
        query, key, value = (_unit_stride(t) for t in (call.query, call.key, call.value))
        causal = call.mask is not None
        found = fused_gradients_on_cpu(
            grad_out.contiguous(), query, key, value, out, lse, causal=causal, scale=call.scale
        )
        if causal and not all(_finite(gradient) for gradient in found):
            return tiled_backward(call, out, lse, grad_out, grad_lse)
        of_query, of_key, of_value = (gradient.contiguous() for gradient in found)
        return AttentionGradients(of_query, of_key, of_value)


def _unit_stride(tensor: Tensor) -> Tensor:
    """Return a tensor whose last stride is 1, as the op assumes."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _finite(tensor: Tensor) -> bool:
    import torch

    wide = torch.promote_types(tensor.dtype, torch.float32)
    return bool(tensor.sum(dtype=wide).isfinite())
