"""Attention by one of torch's fused kernels: pieces that the kernel takes, put together again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients, AttentionResult
from torchyard_attention.fused import exact_backward, exact_forward, finite, pieces
from torchyard_cuda import _torch_compat

__all__ = [
    "KERNELS",
    "FusedBackward",
    "FusedForward",
    "FusedKernel",
    "UnsupportedOperatorError",
    "kernel_of",
]


# Needs no second way where hidden values are not finite.
_INSTEAD: Final = "cuda.triton"


class UnsupportedOperatorError(RuntimeError):
    """This torch lacks an operator, or has it with other arguments."""


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """One of torch's kernels.

    Attributes:
        forward: (query, key, value, causal=, scale=) to out and natural lse [B, Hq, Sq].
        backward: (grad_out, (query, key, value), out, lse, causal=, scale=) to three gradients.
        operators: of torch that it calls.
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]
    operators: tuple[str, str]


def _kernel(name: str) -> FusedKernel:
    operator = f"_scaled_dot_product_{name}_attention"
    return FusedKernel(
        getattr(_torch_compat, f"{name}_attention"),
        getattr(_torch_compat, f"{name}_gradients"),
        (operator, f"{operator}_backward"),
    )


KERNELS: Final = MappingProxyType({name: _kernel(name) for name in ("cudnn", "flash", "efficient")})


def kernel_of(name: str) -> FusedKernel:
    """Return a kernel of :data:`KERNELS`.

    Raises:
        UnsupportedOperatorError: this torch's operators are others than those that were read.
    """
    kernel = KERNELS[name]
    lacking = set(_torch_compat.missing()) & set(kernel.operators)
    if lacking:
        raise UnsupportedOperatorError(
            f"cuda.{name}: expected torch's operators {', '.join(sorted(lacking))} with the "
            f"arguments that torch 2.13 gives them, got torch {torch.__version__} without; demand "
            f"another implementation with TORCHYARD_USE"
        )
    return kernel


class FusedForward:
    """Computes ``attention/1`` by one kernel."""

    def __init__(self, kernel: FusedKernel) -> None:
        self._kernel = kernel

    def __call__(self, call: AttentionCall) -> AttentionResult:
        """Compute the outputs.

        Where a mask hides keys and an output is not finite, ``attention.tiled`` computes the call
        again: the kernels multiply hidden values by 0. That reads a result on the host, so it is
        left out while a graph is captured.
        """
        query, key, value = map(_unit_stride, (call.query, call.key, call.value))
        outs, lses = [], []
        with torch.no_grad():
            for piece in pieces(query.shape[2], key.shape[2], call.mask is not None):
                begin, end = piece.rows
                out, lse = self._kernel.forward(
                    query[:, :, begin:end],
                    key[:, :, : piece.keys],
                    value[:, :, : piece.keys],
                    causal=piece.causal,
                    scale=call.scale,
                )
                outs.append(out)
                lses.append(lse)
            out = _joined(outs)
            if call.mask is not None and not finite(out):
                return exact_forward(call, instead=_INSTEAD)
            return AttentionResult(out, _joined(lses) if call.lse else None)


class FusedBackward:
    """Computes ``attention_backward/1`` by one kernel."""

    def __init__(self, kernel: FusedKernel) -> None:
        self._kernel = kernel

    def __call__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute the gradients; ``attention.tiled`` does, where there is one of the lse too."""
        if grad_lse is not None:
            # The kernels have no place for it.
            return exact_backward(call, out, lse, grad_out, grad_lse, instead=_INSTEAD)
        query, key, value = map(_unit_stride, (call.query, call.key, call.value))
        with torch.no_grad():
            of_query: list[Tensor] = []
            of_key: Tensor | None = None
            of_value: Tensor | None = None
            for piece in pieces(query.shape[2], key.shape[2], call.mask is not None):
                begin, end = piece.rows
                rows = (slice(None), slice(None), slice(begin, end))
                found = self._kernel.backward(
                    grad_out[rows].contiguous(),
                    (query[rows], key[:, :, : piece.keys], value[:, :, : piece.keys]),
                    out[rows].contiguous(),
                    lse[rows].contiguous(),
                    causal=piece.causal,
                    scale=call.scale,
                )
                of_query.append(found[0])
                of_key = _added(of_key, found[1], key)
                of_value = _added(of_value, found[2], value)
            assert of_key is not None
            assert of_value is not None
            gradients = (_joined(of_query), of_key, of_value)
            if call.mask is not None and not finite(*gradients):
                return exact_backward(call, out, lse, grad_out, grad_lse, instead=_INSTEAD)
            return AttentionGradients(*gradients)


def _unit_stride(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts, dim=2)


def _added(total: Tensor | None, part: Tensor, whole: Tensor) -> Tensor:
    """Add the gradient of the first keys to that of all."""
    if total is None and part.shape == whole.shape:
        return part.contiguous()
    if total is None:
        total = torch.zeros(whole.shape, dtype=whole.dtype, device=whole.device)
    total[:, :, : part.shape[2]] += part
    return total
