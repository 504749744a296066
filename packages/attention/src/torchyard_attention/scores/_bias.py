"""Biases that are tables: by relative position, or one per query and key."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._api import ScoreModFunction
from torchyard_attention._validation import floats, integers

_MOST_DISTANCE: Final = 1 << 20


def relative_bias(table: Tensor, *, buckets: Tensor | None = None) -> ScoreModFunction:
    """Return a score_mod that adds a learned bias by head and distance kv_idx - q_idx.

    Distances of more than R positions count as R.

    Args:
        table: floating point [Hq, N]. Its gradient sums over all pairs of a distance.
        buckets: integers [2 R + 1]: the column of ``table`` for each distance from -R to R, such as
            :func:`t5_buckets`; None: N = 2 R + 1 and every distance has its own.
    """
    of = "relative_bias"
    floats(of, "table", table, "[Hq, N]", (2,))
    if table.shape[1] < 1:
        raise ValueError(f"{of}: table: expected shape [Hq, N], got {list(table.shape)}")
    if buckets is not None:
        integers(of, "buckets", buckets, "[2 R + 1]")
    places = table.shape[1] if buckets is None else buckets.numel()
    if places % 2 == 0:
        name = "table" if buckets is None else "buckets"
        raise ValueError(f"{of}: {name}: expected 2 R + 1 distances, got {places}")
    reach = places // 2

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return score + table[h, torch.clamp(kv_idx - q_idx, -reach, reach) + reach]

    if buckets is None:
        return score_mod
    columns = buckets

    def bucket_score_mod(
        score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return score + table[h, columns[torch.clamp(kv_idx - q_idx, -reach, reach) + reach]]

    return bucket_score_mod


def t5_buckets(
    count: int = 32,
    max_distance: int = 128,
    *,
    bidirectional: bool = True,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return T5's bucket of each distance kv_idx - q_idx from -max_distance to max_distance.

    Near distances have a bucket each, farther ones share buckets of logarithmic width. Source: T5
    (arXiv 1910.10683) section 2.1; numbered as its published checkpoints.

    Args:
        count: buckets in all; half of them are for keys after the query where ``bidirectional``.
        max_distance: from here on all distances share the last bucket.
        bidirectional: whether keys after the query have buckets; otherwise they share bucket 0.

    Returns:
        int64 [2 * max_distance + 1].
    """
    of = "t5_buckets"
    count = arguments.integer(of, "count", count, least=1, most=_MOST_DISTANCE)
    max_distance = arguments.integer(of, "max_distance", max_distance, least=1, most=_MOST_DISTANCE)
    bidirectional = arguments.boolean(of, "bidirectional", bidirectional)
    if device is not None:
        device = arguments.device(of, "device", device)
    side = count // 2 if bidirectional else count
    exact = side // 2
    if exact < 1 or max_distance <= exact:
        raise ValueError(
            f"{of}: count: expected at least {4 if bidirectional else 2} buckets and a "
            f"distance above {exact}, got {count} and {max_distance}"
        )
    buckets = []
    for distance in range(-max_distance, max_distance + 1):
        away = abs(distance) if bidirectional else max(0, -distance)
        bucket = away
        if away >= exact:
            grown = math.log(away / exact) / math.log(max_distance / exact) * (side - exact)
            bucket = min(side - 1, exact + int(grown))
        buckets.append(bucket + (side if bidirectional and distance > 0 else 0))
    return torch.tensor(buckets, dtype=torch.int64, device=device)


def learnable_bias(bias: Tensor) -> ScoreModFunction:
    """Return a score_mod that adds bias[b, h, q_idx, kv_idx].

    Args:
        bias: floating point [Sq, Sk], [H, Sq, Sk] or [B, H, Sq, Sk]; B and H may be 1 for all.
    """
    shape = "[Sq, Sk], [H, Sq, Sk] or [B, H, Sq, Sk]"
    floats("learnable_bias", "bias", bias, shape, (2, 3, 4))
    whole = bias[(None,) * (4 - bias.ndim)]
    one_batch, one_head = whole.shape[0] == 1, whole.shape[1] == 1

    def score_mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return score + whole[0 if one_batch else b, 0 if one_head else h, q_idx, kv_idx]

    return score_mod
