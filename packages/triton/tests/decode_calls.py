"""Calls of decoding, of pages and of packed sequences, for kernels that run slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import torch
from torch import Tensor

from packages.attention.tests.paged.paged_calls import paged
from torchyard_attention.cases import MASKS
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.testing import make_call, traced_score_mod
from torchyard_triton.attention import Packed, Tiles, varlen

__all__ = [
    "DECODE_CALLS",
    "PACKED",
    "SLOPES",
    "call_with_pages",
    "decode_call",
    "packed_call",
    "sequences",
]

_TILES: Final = Tiles(rows=32, keys=16)
SLOPES: Final = torch.tensor([0.5, 0.25, 0.125, 0.0625])
_SMALL: Final = {"batch": 2, "q_heads": 4, "kv_heads": 2, "q_length": 3, "head_dim": 16}
DECODE_CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "one-query": {"q_length": 1, "kv_length": 300},
    "few-queries": {"kv_length": 70},
    "no-keys": {"kv_length": 0},
    "one-key-head": {"kv_heads": 1, "kv_length": 70, "score": "alibi"},
    "no-groups": {"kv_heads": 4, "kv_length": 40},
    "causal": {"mask": "causal", "block_size": (16, 16), "kv_length": 40},
    "random": {"mask": "random", "block_size": (2, 16), "kv_length": 40, "score": "alibi"},
    "lists-of-each-head": {"mask": "per_head", "block_size": (16, 16), "kv_length": 70},
    "half": {"dtype": torch.float16, "q_length": 1, "kv_length": 300, "value_dim": 24},
    "bfloat16": {"dtype": torch.bfloat16, "q_length": 2, "kv_length": 300, "score": "alibi"},
    "tiles-of-rows": {"q_length": 20, "mask": "empty_rows", "block_size": (8, 32)},
}


def _alibi(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return s + SLOPES[h] * (k - q)


def decode_call(name: str) -> AttentionCall:
    """Build a call."""
    sizes = {**_SMALL, **DECODE_CALLS[name]}
    mask, score = sizes.pop("mask", ""), sizes.pop("score", "")
    sizes.setdefault("kv_length", sizes["q_length"])
    shape = (sizes[size] for size in ("batch", "q_heads", "q_length", "kv_length"))
    visible = MASKS[mask](*shape) if mask else None
    return make_call(**sizes, visible=visible, score_mod=_alibi if score else None, max_scores=True)


def call_with_pages(
    lengths: tuple[int, ...] = (50, 0, 17), kv_length: int = 64, **how: Any
) -> tuple[AttentionCall, AttentionCall]:
    """Return a call whose keys are in pages, and the same with contiguous keys, without NaN."""
    return paged(lengths, kv_length=kv_length, score_mod=_alibi, **how)


# Queries and keys of each sequence.
PACKED: Final = ((20, 20), (1, 30), (0, 5), (7, 0), (12, 19))
_WEIGHTS: Final = torch.linspace(0.5, 1.5, len(PACKED))


def packed_call(
    causal: bool,
    mod: Callable[..., Any] | None,
    keys: Tensor | None = None,
    tiles: Tiles = _TILES,
) -> tuple[AttentionCall, Packed, AttentionResult]:
    """Return a call of packed sequences, the sequences, and what ``varlen`` computes of it.

    Args:
        causal: whether later keys are hidden.
        mod: modifies scores.
        keys: replace key and value in every head and dimension, [1, 1, Tk, 1].
        tiles: of the kernel.
    """
    counts = torch.tensor(PACKED)
    starts = torch.nn.functional.pad(counts.cumsum(0), (0, 0, 1, 0))
    q_total, k_total = starts[-1].tolist()
    call = make_call(
        batch=1, q_heads=4, kv_heads=2, q_length=q_total, kv_length=k_total, head_dim=16,
        score_mod=mod,
    )  # fmt: skip
    if keys is not None:
        call = replace(call, key=keys.expand_as(call.key), value=keys.expand_as(call.value))
    longest = counts.amax(0).tolist()
    packed = Packed(starts[:, 0].int(), starts[:, 1].contiguous(), *longest, causal)
    return call, packed, varlen(call, packed, tiles=tiles)


def _one(
    call: AttentionCall, number: int, causal: bool, mod: Callable[..., Any] | None
) -> AttentionCall:
    """Return the call of one sequence."""
    counts = torch.tensor(PACKED)
    (q_first, k_first), (q_count, k_count) = counts[:number].sum(0).tolist(), PACKED[number]
    q, k = torch.arange(q_count)[:, None], torch.arange(k_count)
    visible = (k <= q + k_count - q_count)[None, None] if causal else None
    alone = make_call(
        batch=1, q_heads=4, kv_heads=2, q_length=q_count, kv_length=k_count, head_dim=16,
        visible=visible,
    )  # fmt: skip
    keys = slice(k_first, k_first + k_count)
    score = None
    if mod is not None:
        score = traced_score_mod(lambda s, b, h, q, k: mod(s, b + number, h, q, k))
    return replace(
        alone,
        query=call.query[:, :, q_first : q_first + q_count],
        key=call.key[:, :, keys],
        value=call.value[:, :, keys],
        score_mod=score,
    )


def _weighted(s: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    """Return scores that depend on the sequence, the head and the distance."""
    return s * _WEIGHTS[b] + SLOPES[h] * (k - q)


def sequences(causal: bool, **how: Any) -> Iterator[tuple[AttentionCall, AttentionResult]]:
    """Yield each packed sequence's call alone, and the part of the packed result that is its."""
    call, packed, result = packed_call(causal, _weighted, **how)
    assert result.lse is not None
    for number, (first, end) in enumerate(pairwise(packed.starts_q.tolist())):
        part = (result.out[:, :, first:end].contiguous(), result.lse[:, :, first:end])
        yield _one(call, number, causal, _weighted), AttentionResult(*part)
