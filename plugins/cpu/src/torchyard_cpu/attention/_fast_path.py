"""The fast path of attention, by the native module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionRequest, MaskKind, ScoreKind
from torchyard_attention.fast_path import PathMask, PathScore
from torchyard_cpu import _native
from torchyard_cpu._tensor_reader import reads_tensors
from torchyard_cpu._tuning.tunables import Tunables
from torchyard_cpu.attention._path_scores import path_score

__all__ = ["NativeAttentionPath", "attention_path"]

_Kernels = Mapping[torch.dtype, tuple[str, Tunables]]

# In the order of native DType.
_DTYPES: Final = ("float32", "bfloat16", "float16")
_MASKS: Final = (MaskKind.NONE, MaskKind.CAUSAL, MaskKind.BLOCKS)


class NativeAttentionPath:
    """``torchyard_attention.fast_path.AttentionPath`` by the native module."""

    try_call: Callable[
        [
            Tensor,
            Tensor,
            Tensor,
            PathMask | None,
            float | None,
            bool,
            bool,
            PathScore | None,
        ],
        Tensor | tuple[Tensor, Tensor] | None,
    ]

    def __init__(self, native: _native.FastPath) -> None:
        self._native = native
        self.try_call = native.try_call
        self.clear = native.clear

    def enable(self, request: AttentionRequest, call: AttentionCall | None = None) -> bool:
        """Compute calls that make this request from now on, where native code alone can.

        Args:
            request: of a call.
            call: the call; not needed where it has no score_mod.
        """
        if (
            request.score is ScoreKind.GENERAL
            or request.dtype not in _DTYPES
            or not request.unit_stride
            or request.max_scores
            or request.grad
            or request.deterministic
            or request.page_size
        ):
            return True
        words = (
            _DTYPES.index(request.dtype),
            request.batch,
            request.q_heads,
            request.kv_heads,
            request.q_length,
            request.kv_length,
            request.head_dim,
            request.value_dim,
            _MASKS.index(request.mask),
            *request.block_size,
            int(request.lse),
        )
        if request.score is ScoreKind.NONE:
            self._native.enable(words)
        elif call is not None and call.score_mod is not None:
            sizes = (*call.query.shape[:3], call.key.shape[2])
            score = path_score(call.score_mod, sizes) if all(sizes) else None
            if score is not None:
                self._native.enable(words, call.score_mod.text, *score)
        return True


def attention_path(kernels: _Kernels, decode_kernels: _Kernels) -> NativeAttentionPath | None:
    """Return a path with nothing enabled; None where native code cannot read torch's tensors."""
    if not reads_tensors():
        return None
    rows = tuple(
        (*kernels[dtype], *decode_kernels[dtype])
        for dtype in (getattr(torch, name) for name in _DTYPES)
    )
    return NativeAttentionPath(_native.attention_fast_path(rows))
