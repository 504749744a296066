"""What torch does not publish and this plugin uses of it: fused attention, and fake tensors.

scaled_dot_product_attention returns no log-sum-exp and picks a kernel by itself; its operators do
return one, and are one kernel each. :data:`SCHEMAS` holds them as read from torch 2.13, and
:func:`missing` names those that another torch has otherwise: their implementation then refuses to
load. No other module of the package names a private part of torch.

The log-sum-exp is natural for all three: torch's own context parallelism merges parts by it
(torch/distributed/tensor/experimental/_context_parallel).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

__all__ = [
    "SCHEMAS",
    "cudnn_attention",
    "cudnn_gradients",
    "efficient_attention",
    "efficient_gradients",
    "fake_tensors",
    "flash_attention",
    "flash_gradients",
    "missing",
]

_INPUTS: Final = "Tensor query, Tensor key, Tensor value"
_SIZES: Final = "Tensor cum_seq_q, Tensor cum_seq_k, SymInt max_q, SymInt max_k"
# Rows of the memory-efficient kernel's log-sum-exp are padded to a multiple of this.
_ALIGNED: Final = 32

SCHEMAS: Final = MappingProxyType[str, str](
    {
        "_scaled_dot_product_cudnn_attention": (
            f"({_INPUTS}, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0., "
            "bool is_causal=False, bool return_debug_mask=False, *, float? scale=None) -> "
            f"(Tensor output, Tensor logsumexp, {_SIZES}, Tensor philox_seed, "
            "Tensor philox_offset, Tensor debug_attn_mask)"
        ),
        "_scaled_dot_product_cudnn_attention_backward": (
            f"(Tensor grad_out, {_INPUTS}, Tensor out, Tensor logsumexp, Tensor philox_seed, "
            f"Tensor philox_offset, Tensor attn_bias, {_SIZES}, float dropout_p, "
            "bool is_causal, *, float? scale=None) -> (Tensor, Tensor, Tensor)"
        ),
        "_scaled_dot_product_flash_attention": (
            f"({_INPUTS}, float dropout_p=0., bool is_causal=False, "
            "bool return_debug_mask=False, *, float? scale=None) -> "
            f"(Tensor output, Tensor logsumexp, {_SIZES}, Tensor rng_state, Tensor unused, "
            "Tensor debug_attn_mask)"
        ),
        "_scaled_dot_product_flash_attention_backward": (
            f"(Tensor grad_out, {_INPUTS}, Tensor out, Tensor logsumexp, {_SIZES}, "
            "float dropout_p, bool is_causal, Tensor philox_seed, Tensor philox_offset, *, "
            "float? scale=None) -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"
        ),
        "_scaled_dot_product_efficient_attention": (
            f"({_INPUTS}, Tensor? attn_bias, bool compute_log_sumexp, float dropout_p=0., "
            "bool is_causal=False, *, float? scale=None) -> "
            "(Tensor output, Tensor log_sumexp, Tensor philox_seed, Tensor philox_offset)"
        ),
        "_scaled_dot_product_efficient_attention_backward": (
            f"(Tensor grad_out_, {_INPUTS}, Tensor attn_bias, Tensor out, Tensor logsumexp, "
            "Tensor philox_seed, Tensor philox_offset, float dropout_p, bool[4] grad_input_mask, "
            "bool is_causal=False, *, float? scale=None) -> (Tensor, Tensor, Tensor, Tensor)"
        ),
    }
)

_Gradients = tuple[Tensor, Tensor, Tensor]


def missing() -> tuple[str, ...]:
    """Return the operators that this torch has not, or with another schema."""
    return tuple(name for name, schema in SCHEMAS.items() if _schema(name) != schema)


def _schema(name: str) -> str:
    packet = getattr(torch.ops.aten, name, None)
    return "" if packet is None else str(packet.default._schema).removeprefix(f"aten::{name}")


def fake_tensors() -> AbstractContextManager[object]:
    """Return a context in which tensors have no elements, on devices that need not be there."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def cudnn_attention(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return out and lse [B, Hq, Sq] by cuDNN; causal needs as many keys as rows."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, None, True, 0.0, causal, False, scale=scale
    )
    return out, lse.squeeze(-1)


def cudnn_gradients(
    grad_out: Tensor,
    inputs: _Gradients,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> _Gradients:
    """Return the gradients of query, key and value by cuDNN."""
    query, key, value = inputs
    none = torch.empty((), dtype=torch.int64, device=query.device)
    found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        *(grad_out, query, key, value, out, lse.unsqueeze(-1), none, none),
        # None is an undefined tensor here. A bias, or the ends of packed sequences, that are
        # defined are there, however empty.
        *(None, None, None, query.shape[2], key.shape[2], 0.0, causal),
        scale=scale,
    )
    return found[0], found[1], found[2]


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return out and lse [B, Hq, Sq] by FlashAttention; causal needs as many keys as rows."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        query, key, value, 0.0, causal, False, scale=scale
    )
    return out, lse


def flash_gradients(
    grad_out: Tensor,
    inputs: _Gradients,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> _Gradients:
    """Return the gradients of query, key and value by FlashAttention."""
    query, key, value = inputs
    state = torch.empty((2,), dtype=torch.uint64, device=query.device)
    unused = torch.empty((), dtype=torch.uint64, device=query.device)
    found = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        # Ends of packed sequences that are defined are there, however empty.
        *(grad_out, query, key, value, out, lse, None, None),
        *(query.shape[2], key.shape[2], 0.0, causal, state, unused),
        scale=scale,
    )
    return found[0], found[1], found[2]


def efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Return out and lse [B, Hq, Sq] by CUTLASS."""
    out, lse, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, None, True, 0.0, causal, scale=scale
    )
    return out, lse[..., : query.shape[2]]


def efficient_gradients(
    grad_out: Tensor,
    inputs: _Gradients,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool,
    scale: float,
) -> _Gradients:
    """Return the gradients of query, key and value by CUTLASS."""
    query, key, value = inputs
    rest = -lse.shape[2] % _ALIGNED
    aligned = torch.nn.functional.pad(lse, (0, rest), value=torch.inf) if rest else lse
    none = torch.empty((), dtype=torch.int64, device=query.device)
    # The kernel takes the strides of every input but this one's, which it has as its own forward
    # leaves it: [B, Sq, Hq, Dv] in memory.
    laid_out = out.transpose(1, 2).contiguous().transpose(1, 2)
    found = torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        *(grad_out, query, key, value, None, laid_out, aligned, none, none),
        *(0.0, [True, True, True, False], causal),
        scale=scale,
    )
    return found[0], found[1], found[2]
