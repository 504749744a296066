"""Ready-made score_mods, and attention sinks.

Each function but :func:`sinks` returns a score_mod, ``(score, b, h, q_idx, kv_idx) -> score``, for
this package's and torch's flex_attention alike. Tensors that they take may be parameters: gradients
reach them. :func:`sinks` works on attention's outputs instead, because a sink is part of the
softmax's sum and of no score.
"""

from __future__ import annotations

from torchyard_attention.scores._alibi import alibi, alibi_slopes
from torchyard_attention.scores._bias import learnable_bias, relative_bias, t5_buckets
from torchyard_attention.scores._chain import chain
from torchyard_attention.scores._sinks import SinkOutput, sinks
from torchyard_attention.scores._softcap import softcap

__all__ = [
    "SinkOutput",
    "alibi",
    "alibi_slopes",
    "chain",
    "learnable_bias",
    "relative_bias",
    "sinks",
    "softcap",
    "t5_buckets",
]
