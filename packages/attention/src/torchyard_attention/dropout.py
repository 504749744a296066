"""The dropout mask of attention weights: a function of a seed and a pair's indices alone.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in torch's
int64 arithmetic, so that every implementation, tile and thread, forward and backward, computes the
same mask without storing it. The counter is ``(k // 4, q, b * Hq + h, low word of seed[1])``, the
key is the two words of ``seed[0]``, and the ``k % 4``-th word of the result decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from torchyard import arguments

__all__ = ["Dropout", "dropout_factors", "new_seed", "philox"]

_WORD: Final = 0xFFFFFFFF
_ROUNDS: Final = 10
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True, slots=True, eq=False)
class Dropout:
    """Which weights of a call count for out.

    The weight of (b, h, q, k) is kept where its random word, see above, is at least
    ``round(probability * 2**32)``.

    Attributes:
        probability: with which a weight is dropped; above 0, up to 1.
        seed: int64 [2], neither below 0, on the query's device.
    """

    probability: float
    seed: Tensor


def new_seed(device: torch.device) -> Tensor:
    """Draw a seed from torch's generator of a device: int64 [2]."""
    return torch.randint(2**62, (2,), device=arguments.device("new_seed", "device", device))


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> Tensor:
    """Return four random words for each counter: int64 [..., 4], each of 32 bits.

    Args:
        counter: int64, four words that broadcast to one another.
        key: int64, two words.
    """
    first, second, third, fourth = counter
    low, high = key
    for _ in range(_ROUNDS):
        # The 64-bit products wrap around, and their halves are right all the same.
        left, right = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        first, second, third, fourth = (
            (right >> 32 & _WORD) ^ second ^ low,
            right & _WORD,
            (left >> 32 & _WORD) ^ fourth ^ high,
            left & _WORD,
        )
        low, high = low + _WEYL[0] & _WORD, high + _WEYL[1] & _WORD
    words = (first, second, third, fourth)
    # Ten rounds have mixed every word of the counter into each of these.
    return torch.stack(words, dim=-1)


def dropout_factors(
    dropout: Dropout,
    places: tuple[Tensor, Tensor, Tensor, Tensor],
    q_heads: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return what weights are multiplied by, 0 or 1 / (1 - probability): [B', H', Q', K'].

    Args:
        dropout: the call's.
        places: int64 [B'], [H'], [Q'], [K']: the pairs' indices; the last ascending.
        q_heads: Hq.
        dtype: of the result.
    """
    b, h, q, k = places
    groups, group = torch.unique_consecutive(k // 4, return_inverse=True)
    seed = dropout.seed
    words = philox(
        (
            groups,
            q.view(-1, 1),
            (b.view(-1, 1, 1, 1) * q_heads + h.view(-1, 1, 1)),
            seed[1] & _WORD,
        ),
        (seed[0] & _WORD, seed[0] >> 32 & _WORD),
    ).flatten(-2)
    if words.shape[-1] != k.shape[0]:
        words = words[..., group * 4 + k % 4]
    probability = dropout.probability
    scale = 0.0 if probability == 1.0 else 1.0 / (1.0 - probability)
    return (words >= round(probability * 2**32)).to(dtype) * scale
