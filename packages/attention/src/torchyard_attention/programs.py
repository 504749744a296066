"""Score programs as plugins read them: their steps and the dtypes of what they give.

A kernel library that computes a score_mod by itself starts here: :func:`typed_program` turns the
text of a ``ScoreMod``, or of a request, into steps. Each operation is the torch
function of that name on scalars. Functions of other inputs: ``torchyard_programs``.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from torchyard_attention._mods._evaluate import score_inputs
from torchyard_programs import Reference, Step, TypedProgram
from torchyard_programs import typed_program as typed_program_of

__all__ = ["Reference", "Step", "TypedProgram", "typed_program"]


@lru_cache(maxsize=256)
def typed_program(
    text: str, captured: tuple[tuple[str, int], ...], score_dtype: str = "float32"
) -> TypedProgram:
    """Return the steps of a pointwise program; its inputs are ``s b h q k``.

    Args:
        text: a program, from ``ScoreMod.text`` or ``AttentionRequest.score_text``.
        captured: dtype name and number of dimensions of each captured tensor.
        score_dtype: the raw score's.
    """
    traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
    return typed_program_of(text, score_inputs(getattr(torch, score_dtype)), traits)
