"""Programs of score_mods, cached where a function is known to do the same again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention._mods._trace import SCORE_INPUTS, trace
from torchyard_programs import Recordings

__all__ = ["Recording", "cached_recording", "is_cached", "one_text", "recorded"]

# A program and the tensors that it captures, in its order.
Recording: TypeAlias = tuple[str, tuple[Tensor, ...]]

_ROLE: Final = "score_mod"


def recorded(
    function: Callable[..., Any],
    dtype: torch.dtype,
    device: torch.device,
    leaves: Sequence[Tensor] = (),
) -> tuple[str, list[Tensor]]:
    """Record a score_mod, or take the cached recording of one that does the same.

    Args:
        function: the score_mod.
        dtype: the scores'.
        device: the query's.
        leaves: what the scores are computed of.
    """
    if dtype is not torch.float32 or torch.compiler.is_compiling():
        return trace(function, _ROLE, SCORE_INPUTS, dtype, device, leaves=leaves)
    return _RECORDINGS.recorded(function, device)


def _record(function: Callable[..., Any], device: torch.device) -> tuple[str, list[Tensor]]:
    return trace(function, _ROLE, SCORE_INPUTS, torch.float32, device)


_RECORDINGS: Final = Recordings(_record)
# For float32 scores; see Recordings. The caller makes sure that nothing is being compiled.
cached_recording: Final[Callable[[Callable[..., Any]], Recording | None]] = (
    _RECORDINGS.cached_recording
)
is_cached: Final = _RECORDINGS.is_interned
one_text: Final = _RECORDINGS.interned
