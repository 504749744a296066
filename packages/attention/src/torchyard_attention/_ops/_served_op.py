"""The op's calls whose decision is known, as compiled, exported and captured graphs make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention._mods._recordings import one_text
from torchyard_attention._mods._trace import IDENTITY
from torchyard_attention._ops._arguments import COMMON, Arguments, stale
from torchyard_attention._ops._decided import served
from torchyard_attention._ops._request import lse_dtype
from torchyard_attention.contract import MaskBlocks
from torchyard_attention.direct import DirectMask

__all__ = ["make_recognisable", "op_outputs", "served_op"]

_TEXT: Final = Arguments._fields.index("score_text")


def served_op(given: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor] | None:
    """Compute a call like one that was decided before; None, without an effect, for any other.

    Whatever called the op had its turn above, so only what is active in its kernel matters. Nothing
    is taken for granted of the arguments, which nobody but a fake may have looked at.

    Args:
        given: the forward op's arguments.
    """
    options, lse, max_scores, grad, use = given[COMMON - 1 : COMMON + 4]
    # What is left is dropout, unless it drops nothing.
    if any(given[COMMON + 4 : COMMON + 5]) or options or max_scores or grad or use:
        return None
    query, key, value, captured, text, mask, block_size, causal, mask_captured = given[:9]
    versions, scale = given[10:12]
    known = None
    if mask:
        if query.dim() != 4 or key.dim() != 4:
            return None
        if mask_captured and stale(mask_captured, versions or ()):
            return None
        # Who made the graph compared the lengths; a mask says nothing of them in the op's form.
        blocks = MaskBlocks((block_size[0], block_size[1]), *mask)
        known = DirectMask(blocks, (query.shape[2], key.shape[2]), causal)
    score = None
    if text != IDENTITY:
        if query.dtype == torch.float64:
            return None
        score = one_text(text), tuple(captured or ())
    found = served(query, key, value, known, scale, True, lse, score)
    if found is None:
        return None
    return op_outputs(query, *found) if isinstance(found, tuple) else op_outputs(query, found)


def make_recognisable(given: list[Any]) -> None:
    """Put in a score's program as the object that later calls bring too, which ``remember`` needs.

    Each call of an op brings another object. Programs for float64 scores are left as they are: they
    may be others than a function's for float32.

    Args:
        given: the forward op's arguments, or the first of them.
    """
    query, text = given[0], given[_TEXT]
    if text != IDENTITY and query.dtype != torch.float64:
        given[_TEXT] = one_text(text)


def op_outputs(
    query: Tensor, out: Tensor, lse: Tensor | None = None, max_scores: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return outputs as the op does: nothing stands as an empty tensor, each one of its own."""
    dtype = lse_dtype(query)
    return (
        out,
        query.new_empty(0, dtype=dtype) if lse is None else lse,
        query.new_empty(0, dtype=dtype) if max_scores is None else max_scores,
    )
