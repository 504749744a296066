"""Decoding over the pages of a cache, beside keys that lie side by side."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from benchmarks.measuring.cases import Case
from torchyard_attention import PagedKVCache, PagedStep

__all__ = ["decodes", "paged"]


def decodes(case: Case) -> bool:
    """Return whether a case is one new token per sequence over all of its keys."""
    return case.decoding and case.score is None and case.mask_mod is None


class _Paged:
    """Attention over caches that are filled when keys are first seen."""

    def __init__(self, page_size: int, demand: str | None) -> None:
        self._page_size = page_size
        self._demand = demand
        self._steps: dict[int, PagedStep] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        step = self._steps.get(key.data_ptr())
        if step is None:
            step = self._steps[key.data_ptr()] = self._filled(key, value)
        out = step.attention(query, implementation=self._demand)
        assert isinstance(out, Tensor)
        return out

    def _filled(self, key: Tensor, value: Tensor) -> PagedStep:
        batch, kv_heads, length, head_dim = key.shape
        pages = batch * -(-length // self._page_size)
        cache = PagedKVCache(
            pages, self._page_size, kv_heads=kv_heads, head_dim=head_dim, dtype=key.dtype
        )
        # After this the free pages are in any order, as in a cache that was long in use.
        short = [cache.open() for _ in range(pages)]
        cache.extend(short)
        random.Random(0).shuffle(short)
        for sequence in short:
            cache.close(sequence)
        sequences = [cache.open() for _ in range(batch)]
        with torch.no_grad():
            cache.append(sequences, key, value)
        return cache.step(sequences)


def paged(demand: str | None) -> dict[str, _Paged]:
    """Return a contestant for small pages and one for large ones, in scattered order.

    Args:
        demand: the implementation that must compute it; None: the one that the registry chooses.
    """
    return {f"torchyard, pages of {size}": _Paged(size, demand) for size in (16, 128)}
