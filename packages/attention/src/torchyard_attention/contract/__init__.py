"""The contracts ``attention/1`` and ``attention_backward/1``.

With B batches, Hq query heads, Hkv key heads, Sq queries, Sk keys, D head size, V value size and
query head h reading key head h // (Hq / Hkv)::

    raw[b, h, q, k]    = scale * sum_d query[b, h, q, d] * key[b, h // G, k, d]
    scores[b, h, q, k] = score_mod(raw[b, h, q, k], b, h, q, k)    where (q, k) is visible
                       = -inf                                     elsewhere
    lse[b, h, q]       = log(sum_k exp(scores[b, h, q, k]))
    out[b, h, q, v]    = sum_k exp(scores[b, h, q, k] - lse[b, h, q]) * value[b, h // G, k, v]

With dropout of probability p a weight counts for out divided by 1 - p, or as 0: which of them is a
function of the call's seed and of (b, h, q, k), see ``torchyard_attention.dropout``.

A row that sees no key has out 0, lse -inf and max_scores -inf. Nothing of a key or value that a
row does not see reaches that row, NaN and infinities included, and nothing of a row, of its query
and gradients, reaches the gradient of a key or value that it does not see. Scores, softmax and sums
are float32, or float64 where the inputs are. Source: FlashAttention-2 (arXiv 2307.08691) section 2
and FlexAttention (arXiv 2412.05496) section 3; empty rows as torch.nn.attention.flex_attention.

This module is what a plugin needs to implement attention. It imports torch only for type checkers.
"""

from __future__ import annotations

from torchyard_attention.contract._call import (
    AttentionCall,
    AttentionGradients,
    AttentionResult,
    Backward,
    Forward,
    MaskBlocks,
    MaskSource,
    ScoreMod,
)
from torchyard_attention.contract._columns import listed_by_columns
from torchyard_attention.contract._definitions import BACKWARD, DEFINITIONS, FORWARD
from torchyard_attention.contract._request import (
    AttentionRequest,
    MaskKind,
    ScoreKind,
    lacking_of_score,
    refused_programs,
    refused_sizes,
)

__all__ = [
    "BACKWARD",
    "DEFINITIONS",
    "FORWARD",
    "AttentionCall",
    "AttentionGradients",
    "AttentionRequest",
    "AttentionResult",
    "Backward",
    "Forward",
    "MaskBlocks",
    "MaskKind",
    "MaskSource",
    "ScoreKind",
    "ScoreMod",
    "lacking_of_score",
    "listed_by_columns",
    "refused_programs",
    "refused_sizes",
]
