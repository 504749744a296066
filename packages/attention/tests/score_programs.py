"""Score and mask functions: 40 with names, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.nn import functional as F

from torchyard_attention import and_masks, masks, or_masks, scores

__all__ = ["LENGTH", "MASKS", "SCORES", "random_score"]

_Function = Callable[..., Any]
# Queries and keys that the captured tensors here have.
LENGTH: Final = 64


def _tables() -> dict[str, _Function]:
    ids = torch.arange(LENGTH) // 11
    offsets = torch.tensor([0, 9, 30, 31, LENGTH])
    parents = torch.tensor([-1, *((index - 1) // 2 for index in range(1, LENGTH))])
    visible = torch.rand((LENGTH, LENGTH), generator=torch.Generator().manual_seed(0)) < 0.5
    lengths = torch.tensor([40, 17])
    window = torch.tensor(13)
    return {
        "causal": masks.causal,
        "sliding_window": masks.sliding_window(16),
        "sliding_window-ahead": masks.sliding_window(9, ahead=5),
        "dilated": masks.dilated(8, 3),
        "document": masks.document(ids),
        "document-int32": masks.document(ids.int()),
        "varlen": masks.varlen(offsets),
        "shared_prefix": masks.shared_prefix(10, ids),
        "block_diffusion": masks.block_diffusion(LENGTH // 2, 8),
        "natten_1d": masks.natten_1d(LENGTH, 7),
        "natten_2d": masks.natten_2d((8, 8), (3, 5)),
        "global_local": masks.global_local(4, 9),
        "padding": masks.padding(lengths),
        "prefix_lm": masks.prefix_lm(lengths),
        "tree": masks.tree(parents),
        "causal-and-document": and_masks(masks.causal, masks.document(ids)),
        "window-or-prefix": or_masks(masks.sliding_window(8), masks.prefix_lm(5)),
        "dense": lambda b, h, q, k: visible[q, k],
        "captured-window": lambda b, h, q, k: (q - k).abs() < window,
        "floor-division": lambda b, h, q, k: (q - k) // -3 == (k - q) % 5,
    }


def _score_mods() -> dict[str, _Function]:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    bias, per_head, rows, gate = normal(LENGTH, LENGTH), normal(4), normal(LENGTH), normal()
    table = normal(4, 2 * LENGTH)
    half = normal(2, 4).half()
    buckets = scores.t5_buckets(32, 64)
    return {
        "alibi": scores.alibi(scores.alibi_slopes(4)),
        "alibi-symmetric": scores.alibi(scores.alibi_slopes(4), symmetric=True),
        "softcap": scores.softcap(3.0),
        "learnable_bias": scores.learnable_bias(normal(4, LENGTH, LENGTH)),
        "relative_bias": scores.relative_bias(normal(4, 2 * LENGTH - 1)),
        "relative_bias-t5": scores.relative_bias(normal(4, 32), buckets=buckets),
        "chain": scores.chain(scores.alibi(scores.alibi_slopes(4)), scores.softcap(2.0)),
        "bias": lambda s, b, h, q, k: s + bias[q, k],
        "bias-transposed": lambda s, b, h, q, k: s + bias.T[q, k],
        "head-gate": lambda s, b, h, q, k: s * torch.sigmoid(per_head[h]),
        "row-column": lambda s, b, h, q, k: s + rows[q] * rows[k],
        "gate": lambda s, b, h, q, k: s * gate + (gate > 0) * (q - k),
        "half-table": lambda s, b, h, q, k: s + half[b, h],
        "relative-index": lambda s, b, h, q, k: s + table[h, q - k + LENGTH],
        "negative-index": lambda s, b, h, q, k: s + rows[-1 - k] - rows[-1],
        "rounded": lambda s, b, h, q, k: s + (q // 7 - k // 7).to(torch.float32) * 0.1,
        "gelu": lambda s, b, h, q, k: F.gelu(s) + F.softplus(s * 0.5),
        "hidden": lambda s, b, h, q, k: torch.where(q % 4 == 1, -torch.inf, s),
        "distance": lambda s, b, h, q, k: s - torch.log1p((q - k).abs().float()),
        "constant": lambda s, b, h, q, k: (q * 3 - k) * 0.25,
    }


MASKS: Final[Mapping[str, _Function]] = _tables()
SCORES: Final[Mapping[str, _Function]] = _score_mods()

_SMOOTH: Final = (torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.erf, F.silu, F.softsign)


def random_score(seed: int) -> _Function:
    """Return a random smooth function of the score, indices and captured tensors."""
    choose = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    captured = {
        "table": torch.randn((4, LENGTH), generator=generator),
        "rows": torch.randn(LENGTH, generator=generator).half(),
        "numbers": torch.randint(-LENGTH, LENGTH, (LENGTH,), generator=generator),
        "scalar": torch.randn((), generator=generator),
    }

    def index(depth: int) -> _Function:
        kind = choose.randrange(7 if depth else 3)
        if kind < 3:
            return (lambda *a: a[3], lambda *a: a[4], lambda *a: a[2])[kind]
        one, other, by = index(depth - 1), index(depth - 1), choose.choice((-5, -3, 2, 4, 7))
        if kind == 3:
            return lambda *a: one(*a) + other(*a)
        if kind == 4:
            return lambda *a: one(*a) - other(*a) * 2
        if kind == 5:
            return lambda *a: one(*a) // by
        return lambda *a: captured["numbers"][one(*a) % LENGTH]

    def value(depth: int) -> _Function:
        kind = choose.randrange(9 if depth else 4)
        place = index(1)
        if kind == 0:
            return lambda *a: a[0]
        if kind == 1:
            return lambda *a: captured["table"][a[2], place(*a) % LENGTH]
        if kind == 2:
            # Converted, since evaluation by tiles rounds a tile of half times a scalar to half.
            return lambda *a: captured["rows"][place(*a) % LENGTH].float() * captured["scalar"]
        if kind == 3:
            return lambda *a: place(*a) * 0.03125
        one, other = value(depth - 1), value(depth - 1)
        if kind == 4:
            return lambda *a: one(*a) + other(*a)
        if kind == 5:
            return lambda *a: one(*a) * torch.tanh(other(*a))
        if kind == 6:
            function = choose.choice(_SMOOTH)
            return lambda *a: function(one(*a) + a[0] * 0.5)
        if kind == 7:
            bound = index(1)
            return lambda *a: torch.where(place(*a) < bound(*a), one(*a), other(*a))
        return lambda *a: one(*a) / (1.5 + torch.sigmoid(other(*a) * 1.0))

    body = value(3)
    return lambda s, b, h, q, k: s * 0.5 + body(s, b, h, q, k)
