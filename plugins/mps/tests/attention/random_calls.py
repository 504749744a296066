"""Attention calls of random sizes, half of whose places are hidden."""

from __future__ import annotations

from typing import Any

import torch

from torchyard_attention.contract import AttentionCall
from torchyard_attention.testing import make_call

__all__ = ["random_call"]


def random_call(
    kv_heads: int,
    group: int,
    q_length: int,
    kv_length: int,
    blocks: tuple[int, int],
    seed: int,
    **more: Any,
) -> AttentionCall:
    """Return a call; without a mask where blocks have no size.

    Head sizes are few, since each is another program to build.
    """
    generator = torch.Generator().manual_seed(seed)
    visible = torch.rand((1, 1, q_length, kv_length), generator=generator) < 0.5
    return make_call(
        seed=seed,
        batch=1,
        q_heads=kv_heads * group,
        kv_heads=kv_heads,
        q_length=q_length,
        kv_length=kv_length,
        head_dim=8,
        value_dim=12,
        visible=visible if blocks[0] else None,
        block_size=blocks if blocks[0] else (128, 128),
        **more,
    )
