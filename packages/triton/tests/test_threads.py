"""Calls of several threads at once are those of one thread, interpreted kernels too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from packages.attention.tests.attention_calls import call_of
from torchyard_triton.attention import Tiles, forward

_NAMES = ("causal", "grouped-2", "lengths-1-70", "documents")


def test_threads_change_no_bit() -> None:
    calls = [call_of(name) for name in _NAMES] * 2
    alone = [forward(call, tiles=Tiles(rows=32, keys=32)).out for call in calls]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda call: forward(call, tiles=Tiles(rows=32, keys=32)), calls))
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other.out)
