"""Programs of score_mods, kept where a function can be known to do the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention._trace import SCORE_INPUTS, trace
from torchyard_programs import Recordings

__all__ = ["Recording", "is_kept", "kept", "one_text", "recorded"]

# A program and the tensors that it captures, in its order.
Recording: TypeAlias = tuple[str, tuple[Tensor, ...]]

_ROLE: Final = "score_mod"


def recorded(
    function: Callable[..., Any], dtype: torch.dtype, device: torch.device
) -> tuple[str, list[Tensor]]:
    """Record a score_mod, or take what was kept of one that does the same.

    Args:
        function: the score_mod.
        dtype: the scores'.
        device: the query's.
    """
    if dtype is not torch.float32 or torch.compiler.is_compiling():
        return trace(function, _ROLE, SCORE_INPUTS, dtype, device)
    return _RECORDINGS.recorded(function, device)


def kept(function: Callable[..., Any]) -> Recording | None:
    """Return what was kept of a score_mod that does the same; None where nothing was.

    For float32 scores. That nothing is being compiled is for the caller to know.
    """
    return _RECORDINGS.kept(function)


def is_kept(text: str) -> bool:
    """Return whether the object stands for its text, of a recording or of an op's call."""
    return _RECORDINGS.is_kept(text)


def one_text(text: str) -> str:
    """Return the object that stands for a program's text: that of a recording that was kept.

    For float32 scores.
    """
    return _RECORDINGS.one_text(text)


def _record(function: Callable[..., Any], device: torch.device) -> tuple[str, list[Tensor]]:
    return trace(function, _ROLE, SCORE_INPUTS, torch.float32, device)


_RECORDINGS: Final = Recordings(_record)
