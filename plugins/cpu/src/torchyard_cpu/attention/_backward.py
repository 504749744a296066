"""From an attention call's gradients to the native backward kernel's addresses."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients
from torchyard_cpu import _native
from torchyard_cpu._addresses import address
from torchyard_cpu._features import features_for_arithmetic
from torchyard_cpu._tuning.tunables import with_options
from torchyard_cpu.attention._forward import call_places, kernels_of, tensor_place
from torchyard_cpu.attention._score_program import ScoreGradients

__all__ = ["NativeBackward"]


class NativeBackward:
    """The backward, with a kernel chosen for each dtype.

    Args:
        isa: the instruction set to stay within; empty: all that the processor has.
    """

    def __init__(self, isa: str) -> None:
        found = features_for_arithmetic(isa)
        self._kernels = kernels_of(_native.select_backward_kernel, found)

    def __call__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
    ) -> AttentionGradients:
        """Compute the gradients.

        Working memory is the float32 sums of the query's gradient for a few kv heads, and for
        captured tensors whose gradients are wanted float64 sums: some copies in 16 MiB, or one copy
        where that needs more. Tensors whose last dimension is not contiguous are copied first.

        Raises:
            IndexError: the score_mod of a visible pair takes an element that its captured tensor
                does not have.
        """
        query, key, value, out, grad_out = (
            _unit_stride(tensor) for tensor in (call.query, call.key, call.value, out, grad_out)
        )
        grad_query, grad_key, grad_value = (
            torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)
            for tensor in (query, key, value)
        )
        lse = lse.contiguous()
        if grad_lse is not None:
            grad_lse = grad_lse.to(lse.dtype).contiguous()
        kernel, tunables = self._kernels[query.dtype]
        if call.options:
            tunables = with_options(tunables, call.options)
        score = None
        sizes = (*query.shape[:3], key.shape[2])
        if call.score_mod is not None and 0 not in sizes:
            score = ScoreGradients(call.score_mod, call.captured_grad, sizes)
        _native.attention_backward(
            kernel,
            *call_places(query, key, value, out, lse, call.scale, call.mask, tunables),
            tensor_place(grad_out, "grad_out"),
            0 if grad_lse is None else address(grad_lse, "grad_lse"),
            tensor_place(grad_query, "grad_query"),
            tensor_place(grad_key, "grad_key"),
            tensor_place(grad_value, "grad_value"),
            None if score is None else score.score,
            None if score is None else score.gradient,
            torch.get_num_threads(),
            False,
        )
        captured = _zeros(call) if score is None else score.captured()
        return AttentionGradients(grad_query, grad_key, grad_value, captured)


def _zeros(call: AttentionCall) -> tuple[Tensor | None, ...]:
    """Return the gradients of captured tensors where there is no pair."""
    captured = () if call.score_mod is None else call.score_mod.captured
    return tuple(
        torch.zeros(tensor.shape, dtype=tensor.dtype) if wanted else None
        for tensor, wanted in zip(captured, call.captured_grad, strict=False)
    )


def _unit_stride(tensor: Tensor) -> Tensor:
    unit = tensor.stride(3) == 1 or tensor.shape[3] == 1
    return tensor if unit else tensor.contiguous()
