"""A call as the arguments of the forward and backward ops, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from torch import Tensor

from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import IDENTITY
from torchyard_attention.contract import AttentionCall, MaskBlocks, MaskSource, ScoreMod
from torchyard_attention.dropout import Dropout

__all__ = [
    "COMMON",
    "SCORE_TEXT",
    "dropout_arguments",
    "flattened",
    "options_of",
    "options_text",
    "or_none",
    "rebuilt",
    "score_mod_of",
]

# The arguments that both ops have. mask is None, or the six tensors of MaskBlocks in their order.
# A list with nothing in it is None, because an AOTInductor package hands an op no list for an
# empty one.
COMMON_SCHEMA: Final = (
    "Tensor query, Tensor key, Tensor value, Tensor[]? score_captured, str score_text, "
    "Tensor[]? mask, int[] block_size, bool causal, Tensor[]? mask_captured, str mask_text, "
    "int[]? mask_versions, float scale, str options"
)
# Last and with defaults, so that programs that were exported without it stay what they are.
DROPOUT_SCHEMA: Final = "float dropout_p=0.0, Tensor? dropout_seed=None"

COMMON: Final = COMMON_SCHEMA.count(",") + 1
SCORE_TEXT: Final = 4


def flattened(call: AttentionCall) -> list[Any]:
    """Return a call's arguments of ``COMMON_SCHEMA``."""
    score, mask = call.score_mod, call.mask
    source = None if mask is None else mask.source
    return [
        call.query,
        call.key,
        call.value,
        None if score is None else or_none(score.captured),
        IDENTITY if score is None else score.text,
        None if mask is None else list(mask.tensors),
        [0, 0] if mask is None else list(mask.block_size),
        mask is not None and mask.causal,
        None if source is None else or_none(source.captured),
        "" if source is None else source.text,
        None if source is None else or_none(source.versions),
        call.scale,
        options_text(call.options),
    ]


def dropout_arguments(call: AttentionCall) -> tuple[Any, ...]:
    """Return a call's arguments of ``DROPOUT_SCHEMA``; none where nothing is dropped."""
    return () if call.dropout is None else (call.dropout.probability, call.dropout.seed)


def rebuilt(
    common: Sequence[Any],
    dropout: Sequence[Any],
    *,
    lse: bool,
    max_scores: bool,
    grad: bool,
    captured_grad: Sequence[bool] = (),
) -> AttentionCall:
    """Return the call that an op's arguments describe.

    Args:
        common: those of ``COMMON_SCHEMA``.
        dropout: those of ``DROPOUT_SCHEMA``, of which torch leaves out defaults.
        lse, max_scores, grad, captured_grad: the call's; lse is True where grad is.
    """
    query, key, value, captured, text, tensors, block_size, causal, *source, scale, options = common
    probability = dropout[0] if dropout else 0.0
    seed: Any = dropout[1] if len(dropout) > 1 else None
    mask = None
    if tensors:
        of_mask, mask_text, versions = source
        found = None
        if mask_text:
            found = MaskSource(mask_text, tuple(of_mask or ()), tuple(versions or ()))
        mask = MaskBlocks((block_size[0], block_size[1]), *tensors, causal=causal, source=found)
    return AttentionCall(
        query,
        key,
        value,
        score_mod_of(text, captured),
        mask,
        scale,
        lse or grad,
        max_scores,
        options_of(options),
        tuple(captured_grad),
        dropout=None if not probability else Dropout(probability, seed),
        grad=grad,
    )


def score_mod_of(text: str, captured: Sequence[Tensor] | None) -> ScoreMod | None:
    """Return a score program and what it captures as a call has them; None for the identity."""
    return None if text == IDENTITY else TracedMod(text, tuple(captured or ()))


def options_text(options: Sequence[tuple[str, int]]) -> str:
    """Return a call's options as ``name=value;...``."""
    return ";".join([f"{name}={value}" for name, value in options]) if options else ""


@lru_cache(maxsize=256)
def options_of(text: str) -> tuple[tuple[str, int], ...]:
    """Return the options that :func:`options_text` wrote."""
    pairs = (part.rpartition("=") for part in text.split(";") if part)
    return tuple((name, int(value)) for name, _, value in pairs)


def or_none(items: Sequence[Any]) -> list[Any] | None:
    """Return a list as the ops take it."""
    return list(items) or None
