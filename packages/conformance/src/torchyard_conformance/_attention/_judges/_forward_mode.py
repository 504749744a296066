"""The law of attention about forward-mode differentiation of the op around an implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard import use
from torchyard_attention import create_block_mask, flex_attention
from torchyard_attention.cases import MASKS, SCORE_MODS, Case
from torchyard_attention.contract import AttentionCall
from torchyard_attention.reference import reference_backward, reference_forward
from torchyard_conformance._attention._kernel import Kernel
from torchyard_conformance._trials._tangents import keeps_tangents

__all__ = ["drops_no_tangent"]

_Pair = tuple[Tensor, Tensor]


def drops_no_tangent(kernel: Kernel, case: Case) -> dict[str, float]:
    """Differentiate flex_attention, or its gradients, in forward mode with the kernel demanded."""
    call = kernel.accept(case)
    # What is differentiated asks for more than what is not.
    kernel.require(case.request(call, grad=True))
    inputs = (call.query, call.key, call.value)
    here = case.call()

    def attention(query: Tensor, key: Tensor, value: Tensor) -> _Pair:
        found: _Pair = flex_attention(
            query,
            key,
            value,
            score_mod=_score_mod(case),
            block_mask=_block_mask(case, query, key),
            scale=call.scale,
            enable_gqa=True,
            return_lse=True,
        )
        return found

    def naive(query: Tensor, key: Tensor, value: Tensor) -> _Pair:
        return _naive(case, call.scale, query, key, value)

    def exact(query: Tensor, key: Tensor, value: Tensor) -> _Pair:
        found = reference_forward(_on(here, query, key, value))
        assert found.lse is not None
        return found.out, found.lse

    if not kernel.is_backward:
        with use(attention=kernel.name):
            return keeps_tangents(attention, inputs, exact, naive)

    def exact_gradients(slope: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Any:
        moved = _on(here, query, key, value)
        out, lse = exact(query, key, value)
        found = reference_backward(moved, out, lse, slope, None)
        return found.query, found.key, found.value

    shape = (*call.query.shape[:3], call.value.shape[3])
    slope = torch.randn(shape, generator=torch.Generator().manual_seed(23)).to(call.query)
    with use(attention_backward=kernel.name):
        return keeps_tangents(
            _pulled(attention),
            (slope, *inputs),
            exact_gradients,
            _pulled(naive),
            # torch.func nests a gradient in forward mode; dual numbers have no such form.
            dual=False,
        )


def _pulled(function: Callable[..., _Pair]) -> Callable[..., Any]:
    """Return what computes the gradients of a function's first result for a slope."""

    def gradients(slope: Tensor, *tensors: Tensor) -> Any:
        _, pull, *_ = torch.func.vjp(lambda *some: function(*some)[0], *tensors)
        return pull(slope)

    return gradients


def _on(call: AttentionCall, query: Tensor, key: Tensor, value: Tensor) -> AttentionCall:
    return replace(call, query=query, key=key, value=value, lse=True)


def _score_mod(case: Case) -> Any:
    return SCORE_MODS[case.score_mod]() if case.score_mod else None


def _block_mask(case: Case, query: Tensor, key: Tensor) -> Any:
    if not case.mask:
        return None
    assert case.mask == "causal"
    lengths = query.shape[2], key.shape[2]
    return create_block_mask(
        lambda b, h, q, k: q >= k, None, None, *lengths, device=query.device.type
    )


def _naive(case: Case, scale: float, query: Tensor, key: Tensor, value: Tensor) -> _Pair:
    """Compute attention by torch's operations, each rounded to the inputs' dtype."""
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
    scores = query @ key.mT * scale
    if case.score_mod:
        places = torch.meshgrid(*(torch.arange(size) for size in scores.shape), indexing="ij")
        scores = _score_mod(case)(scores, *places)
    if case.mask:
        scores = scores.masked_fill(~MASKS[case.mask](*scores.shape), -torch.inf)
    return scores.softmax(dim=-1) @ value, scores.logsumexp(dim=-1)
