"""The backward of attention.flex: the operator that torch's flex_attention differentiates by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention._torch_compat import compile_traced, flex_gradients
from torchyard_attention.contract import AttentionCall, AttentionGradients
from torchyard_attention.fused import exact_backward, finite
from torchyard_attention.implementations._template import Template, template_of

__all__ = ["compiled_backward"]

_CACHED_VARIANTS: Final = 256
_INSTEAD: Final = "attention.tiled"


@dataclass(frozen=True, slots=True)
class _Variant:
    """All that the code of gradients depends on: of the call, and of what comes beside it."""

    template: Template
    others: tuple[tuple[int, ...], ...]
    # How products of float32 are computed, which a graph is compiled with.
    precision: str


@torch.no_grad()
def compiled_backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    """Compute ``attention_backward/1``; compiles for seconds when a variant is first seen."""
    template, tensors = template_of(call)
    others = [out.detach(), lse.detach(), grad_out.detach().contiguous()]
    if grad_lse is not None:
        others.append(grad_lse.detach().contiguous())
    variant = _Variant(
        template,
        tuple(tensor.stride() for tensor in others),
        torch.get_float32_matmul_precision(),
    )
    query, key, value = _compiled(variant).run(*tensors, *others)
    # torch multiplies hidden values by 0, which lets NaN and inf through.
    if (call.mask is not None or call.score_mod is not None) and not finite(query, key, value):
        return exact_backward(call, out, lse, grad_out, grad_lse, instead=_INSTEAD)
    # Of captured tensors none is asked for here.
    captured = (None,) * len(call.captured_grad)
    return AttentionGradients(query.contiguous(), key.contiguous(), value.contiguous(), captured)


class _Code:
    """Code of a variant, compiled when tensors are first given."""

    def __init__(self, variant: _Variant) -> None:
        self._function = _gradients(variant)
        self._compiled: Callable[..., Any] | None = None

    def run(self, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self._compiled is None:
            self._compiled = compile_traced(self._function, tensors)
        query, key, value = self._compiled(*tensors)
        return query, key, value


@lru_cache(maxsize=_CACHED_VARIANTS)
def _compiled(variant: _Variant) -> _Code:
    return _Code(variant)


def _gradients(variant: _Variant) -> Callable[..., tuple[Tensor, ...]]:
    """Return the gradients of query, key and value as a function of all tensors."""
    template = variant.template
    score_mod, mask_mod = template.score_mod() or _same, template.mask_mod()
    first, last = template.first_list, len(template.tensors)

    def slope(
        score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor, grad: Tensor, *captured: Tensor
    ) -> list[Tensor | None]:
        """Return d loss / d score from d loss / d modified score, and None of all else."""

        def modified(score: Tensor) -> Tensor:
            result: Tensor = score_mod(score, b, h, q, k, *captured)
            return result

        value, pullback, *_ = torch.func.vjp(modified, score)
        (found,) = pullback(grad.to(value.dtype))
        return [found, *([None] * (4 + template.captured))]

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        query, key, value = tensors[:3]
        lists, read = tensors[first : first + 4], tensors[first + 4 : last]
        out, lse, grad_out, *grad_lse = tensors[last:]
        mask = template.block_mask(lists, mask_mod, by_keys=True)
        # The operator's logarithms are to base 2.
        return flex_gradients(
            (query, key, value, out, lse / math.log(2)),
            grad_out,
            grad_lse[0] * math.log(2) if grad_lse else None,
            (score_mod, slope),
            mask.as_tuple(),
            template.scale,
            (tensors[3:first], read),
        )

    return run


def _same(score: Tensor, *_: Tensor) -> Tensor:
    return score
