"""Score modifications that kernels compute, and calls with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call

Mod = Callable[..., Any]

HEADS, ROWS, KEYS = 4, 75, 140
_GENERATOR = torch.Generator().manual_seed(3)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def _integers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=_GENERATOR)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
BIAS = _normal(HEADS, ROWS, KEYS)
TABLE = _normal(300)
DOCUMENTS = _integers(0, 3, 2, 200)
HUGE = DOCUMENTS * 2**40
BUCKETS = _integers(-300, 300, 200).to(torch.int16)
FLAGS = _integers(0, 2, HEADS, 200).bool()
LOW = _normal(HEADS, KEYS).to(torch.bfloat16)
# Subnormal numbers too.
HALF = (_normal(HEADS, ROWS, KEYS) * 2.0 ** _integers(-20, 2, HEADS, ROWS, KEYS)).half()
HALF_FLAT = HALF.flatten()
CAP = torch.tensor(7.0)

MODS: dict[str, Mod] = {
    "alibi": lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    "softcap": lambda s, b, h, q, k: CAP * torch.tanh(s / CAP),
    "softcap alibi": lambda s, b, h, q, k: 9 * torch.tanh(s / 9) - (q - k).abs() * SLOPES[h],
    "relative bias": lambda s, b, h, q, k: s + TABLE[q - k + KEYS],
    "relative bias reversed": lambda s, b, h, q, k: s + TABLE[k - q + ROWS],
    "relative bias by distance": lambda s, b, h, q, k: s + TABLE[(q - k).abs()],
    "relative bias clamped": lambda s, b, h, q, k: s + TABLE[torch.clamp(q - k, -20, 20) + 20],
    "negative indices": lambda s, b, h, q, k: s + TABLE[q - k],
    "bias": lambda s, b, h, q, k: s + BIAS[h, q, k],
    "bias transposed": lambda s, b, h, q, k: s + BIAS.mT.contiguous()[h, k, q],
    "bias strided": lambda s, b, h, q, k: s + BIAS.mT[h, k, q],
    "bias expanded": lambda s, b, h, q, k: s + BIAS[:1].expand(HEADS, -1, -1)[h, q, k],
    "bias of stride 2": lambda s, b, h, q, k: s + TABLE[2 * k],
    "bias bfloat16": lambda s, b, h, q, k: s + LOW[h, k],
    "bias float16": lambda s, b, h, q, k: s + HALF[h, q, k] - HALF[h, 3, k],
    "bias float16 reversed": lambda s, b, h, q, k: s + HALF[h, 5, 139 - k] - HALF[0, q, 2],
    "bias float16 of stride 2": lambda s, b, h, q, k: s + HALF_FLAT[2 * k + q],
    "bias float16 gathered": lambda s, b, h, q, k: s + HALF[h, q, k * q % KEYS],
    "documents": lambda s, b, h, q, k: torch.where(DOCUMENTS[b, q] == DOCUMENTS[b, k], s, -1e9),
    "documents int32": lambda s, b, h, q, k: torch.where(
        DOCUMENTS.int()[b, q] == DOCUMENTS.int()[b, k], s, -math.inf
    ),
    "documents huge": lambda s, b, h, q, k: torch.where(HUGE[b, q] == HUGE[b, k], s, -math.inf),
    "flags": lambda s, b, h, q, k: torch.where(FLAGS[h, k] & ~FLAGS[h, q], s * 2, s),
    "table of table": lambda s, b, h, q, k: s + TABLE[BUCKETS.long()[k]] + TABLE[DOCUMENTS[b, q]],
    "captured scalar": lambda s, b, h, q, k: s * CAP + DOCUMENTS[1, 2],
    "gather of pairs": lambda s, b, h, q, k: s + TABLE[(q * k) % 300],
    "whole division": lambda s, b, h, q, k: (
        s + (q // 7 + k % 5 - (k - q) // 3 + (q - k) % -6) * 0.01
    ),
    "powers of two": lambda s, b, h, q, k: (
        s + ((q - k) // 8 + (q - k) % 16 + ((q << 2) >> 1)) * 0.1
    ),
    "int64": lambda s, b, h, q, k: (
        s + (q * k * 10000000000) % 17 * 0.1 + (q * 10000000000 // 7 > k) * 1.0
    ),
    "int64 wraps": lambda s, b, h, q, k: s + ((q + 1) * (k + 1) * 2**61 > 0) * 0.5,
    "int32 wraps": lambda s, b, h, q, k: s + ((q + 1).int() * (k + 3) * 2**30 > 0) * 0.5,
    "bits": lambda s, b, h, q, k: s + ((q & k) + (q | 3) - (k ^ 5) + ~q) * 0.01,
    "truth": lambda s, b, h, q, k: torch.where(
        torch.logical_or(q == k, torch.logical_not(k > 3)) ^ (h > 1), s, -s
    ),
    "casts": lambda s, b, h, q, k: s.to(torch.int64) * 0.5 + s.int() + (s > 0).float() + s.bool(),
    "functions": lambda s, b, h, q, k: (
        torch.sigmoid(s)
        + torch.log(s.abs() + 1)
        + torch.log2(s.abs() + 2)
        + torch.sqrt(s * s + 1)
        + torch.rsqrt(s * s + 2)
        + torch.exp(s * 0.1)
        + torch.exp2(s)
        + torch.nn.functional.silu(s)
    ),
    "steps": lambda s, b, h, q, k: (
        torch.clamp(s, -1, 1)
        + s.clamp(min=-0.5)
        + torch.relu(s)
        + torch.floor(s)
        + torch.ceil(s)
        + torch.maximum(s, q * 0.01)
        + torch.minimum(s, k)
        + torch.square(s)
    ),
    "powers": lambda s, b, h, q, k: (
        s**2 + s**3 + 2**s + (s.abs() + 1) ** -2 + (s.abs() + 1) ** 0.5 + q**2 * 1e-3
    ),
    "fills": lambda s, b, h, q, k: (
        s + torch.full_like(s, 2.5) + torch.zeros_like(q) + s.new_ones(()) + s.new_full((), 3)
    ),
    "masked fill": lambda s, b, h, q, k: s.masked_fill(k > q + 60, -math.inf),
    "hidden rows": lambda s, b, h, q, k: torch.where(q % 3 == 0, -math.inf, s),
    "nothing": lambda s, b, h, q, k: torch.full_like(s, -math.inf),
    "score unused": lambda s, b, h, q, k: (q - k) * 0.01,
    "a number": lambda s, b, h, q, k: 1.5,
    "huge": lambda s, b, h, q, k: s * 1e37,
    "growing": lambda s, b, h, q, k: s + k * 3.0,
    "shared": lambda s, b, h, q, k: torch.tanh(s) * torch.tanh(s) + torch.tanh(s),
}


def score_call(mod: Mod, **changed: Any) -> AttentionCall:
    """Return a call of 75 queries and 140 keys, of four heads and two."""
    sizes: dict[str, Any] = {
        "batch": 2,
        "q_heads": HEADS,
        "kv_heads": 2,
        "q_length": ROWS,
        "kv_length": KEYS,
        "head_dim": 24,
    }
    return make_call(**{**sizes, **changed}, score_mod=mod)
