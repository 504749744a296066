"""The forward of attention.flex: torch's flex_attention, compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, flex_attention

from torchyard_attention._torch_compat import recompile_limit_error
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.fused import exact_forward, finite
from torchyard_attention.implementations._template import Template, template_of

__all__ = ["FlexRecompileError", "compiled_forward"]

_CACHED_VARIANTS: Final = 256

_Compiled = Callable[..., Any]


class FlexRecompileError(RuntimeError):
    """A variant that was compiled for one shape would have been compiled again."""


@torch.no_grad()
def compiled_forward(call: AttentionCall) -> AttentionResult:
    """Compute ``attention/1``; compiles for seconds when a variant is first seen.

    Raises:
        FlexRecompileError: torch wants to compile a variant again and, in the end, run it eagerly
            on Sq x Sk scores.
    """
    template, tensors = template_of(call)
    try:
        out, lse, max_scores = _compiled(template, call.lse, call.max_scores)(*tensors)
    except recompile_limit_error() as error:
        raise FlexRecompileError(
            f"attention.flex: torch asked to compile {template} again although nothing in it "
            f"changed; use implementation='attention.tiled'"
        ) from error
    hides = call.mask is not None or call.score_mod is not None
    # torch multiplies hidden values by 0, which lets NaN and inf through.
    if hides and not finite(out):
        return exact_forward(call, instead="attention.tiled")
    return AttentionResult(
        out.contiguous(),
        lse.contiguous() if lse is not None else None,
        max_scores.contiguous() if max_scores is not None else None,
    )


@lru_cache(maxsize=_CACHED_VARIANTS)
def _compiled(template: Template, lse: bool, max_scores: bool) -> _Compiled:
    """Return code for one variant, which never counts against another's recompilations."""
    modify, visible = template.score_mod(), template.mask_mod()
    first = template.first_list
    aux = AuxRequest(lse=lse, max_scores=max_scores)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        query, key, value = tensors[:3]
        captured, lists, read = tensors[3:first], tensors[first : first + 4], tensors[first + 4 :]

        def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            assert modify is not None
            modified: Tensor = modify(score, b, h, q, k, *captured)
            return modified

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            assert visible is not None
            seen: Tensor = visible(b, h, q, k, *read)
            return seen

        result = flex_attention(
            query,
            key,
            value,
            score_mod=None if modify is None else score_mod,
            block_mask=template.block_mask(
                lists, None if visible is None else mask_mod, by_keys=False
            ),
            scale=template.scale,
            enable_gqa=query.shape[1] != key.shape[1],
            return_aux=aux if lse or max_scores else None,
        )
        if isinstance(result, tuple):
            return result[0], result[1].lse, result[1].max_scores
        return result, None, None

    # Dynamo keeps compiled code, and counts recompilations, per code object.
    alone = FunctionType(
        run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__
    )
    compiled: _Compiled = torch.compile(alone, fullgraph=True, dynamic=False)
    return compiled
