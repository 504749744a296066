"""Calls whose keys are in the pages of a cache, in any order, between pages of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_attention.pages import KeyPages
from torchyard_attention.testing import make_call

__all__ = ["paged"]


def paged(
    lengths: tuple[int, ...],
    *,
    page_size: int = 16,
    kv_length: int = 0,
    width: int = 0,
    q_length: int = 2,
    causal: bool = False,
    block_size: tuple[int, int] = (128, 128),
    dtype: torch.dtype = torch.float32,
    score_mod: Callable[..., Any] | None = None,
    seed: int = 5,
) -> tuple[AttentionCall, AttentionCall]:
    """Build a call, and the same one with contiguous keys and a mask, without NaN.

    Args:
        lengths: keys of each sequence.
        page_size: keys of a page.
        kv_length: keys that are drawn for each; 0: the longest one's. Equal ones give sequences
            the same keys whatever the lengths are.
        width: of the table of pages; 0: as those keys need.
        q_length, dtype, score_mod: as of make_call.
        causal: whether the rows are each sequence's last positions, by a mask.
        block_size: of that mask.
        seed: of the order of pages.
    """
    longest, batch = kv_length or max(lengths), len(lengths)
    ends = torch.tensor(lengths)
    rows = (torch.arange(q_length) if causal else torch.full((q_length,), q_length - 1))[:, None]
    call = make_call(
        batch=batch,
        q_heads=4,
        kv_heads=2,
        q_length=q_length,
        kv_length=longest,
        head_dim=16,
        dtype=dtype,
        visible=torch.arange(longest) <= rows + (ends - q_length)[:, None, None, None],
        block_size=block_size,
        score_mod=score_mod,
        max_scores=True,
    )
    width = max(width, -(-longest // page_size))
    order = torch.randperm(2 * batch * width, generator=torch.Generator().manual_seed(seed))
    table = order[: batch * width].view(batch, width)
    place = torch.arange(longest)

    def pool(tensor: Tensor) -> Tensor:
        pages = tensor.new_full((order.numel(), page_size, *tensor.shape[1::2]), math.nan)
        for number, length in enumerate(lengths):
            at = place[:length]
            pages[table[number, at // page_size], at % page_size] = tensor[number, :, at].transpose(
                0, 1
            )
        return pages.transpose(1, 2)

    pages = KeyPages(table.to(torch.int32), ends.to(torch.int32))
    mask = call.mask if causal else None
    return replace(call, key=pool(call.key), value=pool(call.value), mask=mask, pages=pages), call
