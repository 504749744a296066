"""The fast path of attention's calls: of ``flex_attention``, and of the op that graphs call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.dispatch import FastPath
from torchyard.torch_compat import deterministic_algorithms
from torchyard_attention._mask_blocks._source import stale
from torchyard_attention._mods._recordings import Recording, is_cached, one_text
from torchyard_attention._mods._trace import IDENTITY, lse_dtype
from torchyard_attention._ops._arguments import COMMON, SCORE_TEXT
from torchyard_attention._ops._layout import in_order
from torchyard_attention.contract import (
    FORWARD,
    AttentionCall,
    AttentionRequest,
    Forward,
    MaskBlocks,
    ScoreKind,
)
from torchyard_attention.fast_path import PathMask

__all__ = [
    "FAST_PATH",
    "enable",
    "op_outputs",
    "try_call",
    "try_op",
    "with_lasting_text",
]

FAST_PATH: Final = FastPath(FORWARD)


def try_call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: PathMask | None,
    scale: float | None,
    enable_gqa: bool,
    lse: bool,
    score: Recording | None,
) -> Tensor | tuple[Tensor, Tensor] | None:
    """Compute a call whose request was enabled; None, without an effect, for any other.

    Nothing is assumed of the arguments. The caller makes sure that nothing is being compiled.
    """
    if deterministic_algorithms():
        return None
    found: Tensor | tuple[Tensor, Tensor] | None = FAST_PATH.try_call(
        None, query, key, value, mask, scale, enable_gqa, lse, score
    )
    if found is None or query.is_contiguous():
        return found
    if isinstance(found, tuple):
        return in_order(found[0], query), *found[1:]
    return in_order(found, query)


def enable(
    cache: dict[Any, Any], forward: Forward, request: AttentionRequest, call: AttentionCall
) -> None:
    """Let calls that make the request take the fast path, where the forward offers one.

    Args:
        cache: the decision cache, from before the decision.
        forward: what the registry decided for, with no demand of the call itself.
        request: what it decided.
        call: what made the request.
    """
    if request.grad or request.score is ScoreKind.GENERAL:
        return
    # Another call finds this one's program only where the recording was stored.
    if call.score_mod is None or is_cached(call.score_mod.text):
        FAST_PATH.enable(cache, forward, request, call)


def try_op(given: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Compute a call of the op whose request was enabled; None, without an effect, for any other.

    Whatever called the op had its turn above, so only what is active in its kernel matters. Nothing
    is assumed of the arguments, which nobody but a fake kernel may have checked.

    Args:
        given: the forward op's arguments.
    """
    options, lse, max_scores, grad, use = given[COMMON - 1 : COMMON + 4]
    # What is left is dropout, unless it drops nothing.
    if any(given[COMMON + 4 : COMMON + 5]) or options or max_scores or grad or use:
        return None
    query, key, value, captured, text, mask, block_size, causal, mask_captured = given[:9]
    versions, scale = given[10:12]
    path_mask = None
    if mask:
        if query.dim() != 4 or key.dim() != 4:
            return None
        if mask_captured and stale(mask_captured, versions or ()):
            return None
        # Whoever made the graph compared the lengths, which a mask in the op's form does not have.
        blocks = MaskBlocks((block_size[0], block_size[1]), *mask)
        path_mask = PathMask(blocks, (query.shape[2], key.shape[2]), causal)
    score = None
    if text != IDENTITY:
        if query.dtype == torch.float64:
            return None
        score = one_text(text), tuple(captured or ())
    found = try_call(query, key, value, path_mask, scale, True, lse, score)
    if found is None:
        return None
    return op_outputs(query, *found) if isinstance(found, tuple) else op_outputs(query, found)


def with_lasting_text(given: list[Any]) -> None:
    """Replace a score's program by the object that later calls pass too, which a path needs.

    Each call of an op passes another object. Programs for float64 scores are left as they are: they
    may be others than a function's for float32.

    Args:
        given: the forward op's arguments, or the first of them.
    """
    query, text = given[0], given[SCORE_TEXT]
    if text != IDENTITY and query.dtype != torch.float64:
        given[SCORE_TEXT] = one_text(text)


def op_outputs(
    query: Tensor, out: Tensor, lse: Tensor | None = None, max_scores: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs as the op does, with an empty tensor for each that there is not."""
    dtype = lse_dtype(query)
    return (
        out,
        query.new_empty(0, dtype=dtype) if lse is None else lse,
        query.new_empty(0, dtype=dtype) if max_scores is None else max_scores,
    )
