"""What a release must not be slower at than the one before: prints name -> seconds as JSON.

``torchyard release verify --gate benchmark`` runs it on both, in turns.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

__all__ = ["main"]

_REPEATS = 9


def _seconds(call: Callable[[], object]) -> float:
    """Return the median of some runs, after one that warms up."""
    call()
    taken = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    """Time what users wait for, and print it."""
    import torch

    from torchyard_attention import flex_attention

    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 512, 64) for _ in range(3))
    last = query[:, :, -1:].contiguous()
    timed = {
        "attention.forward": _seconds(lambda: flex_attention(query, key, value)),
        "attention.decode": _seconds(lambda: flex_attention(last, key, value)),
    }
    print(json.dumps(timed))


if __name__ == "__main__":
    main()
