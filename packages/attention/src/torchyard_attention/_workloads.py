"""Attention's work for ``torchyard doctor --measure``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Final

from torchyard import Workload, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["torchyard_workloads"]

_KEYS: Final = 4096
_HEADS, _KV_HEADS, _HEAD_DIM = 32, 8, 128
# Caches that are read one after another, so that each comes from memory: 256 MiB in all.
_CACHED_BYTES: Final = 256 << 20

_PROMPT: Final = 2048
_PROMPT_HEADS, _PROMPT_HEAD_DIM = 8, 64


@hookimpl
def torchyard_workloads(device: str) -> Sequence[Workload]:
    """Return decoding, which reads keys and values, and a causal prompt, which multiplies."""
    return [*_decoding(device), *_prompts(device)]


def _decoding(device: str) -> Iterator[Workload]:
    for dtype, size in (("bfloat16", 2), ("float32", 4)):
        amount = 2 * _KV_HEADS * _KEYS * _HEAD_DIM * size
        yield Workload(
            f"attention, decode, {dtype}",
            ("read",),
            amount,
            partial(_prepare_decoding, device, dtype, _CACHED_BYTES // amount),
        )


def _prepare_decoding(device: str, dtype: str, caches: int) -> Callable[[], Tensor]:
    import torch

    from torchyard_attention import flex_attention

    make = partial(torch.randn, device=device, dtype=getattr(torch, dtype))
    query = make(1, _HEADS, 1, _HEAD_DIM)
    pairs = cycle(
        [
            (make(1, _KV_HEADS, _KEYS, _HEAD_DIM), make(1, _KV_HEADS, _KEYS, _HEAD_DIM))
            for _ in range(caches)
        ]
    )
    return lambda: flex_attention(query, *next(pairs), enable_gqa=True)


def _prompts(device: str) -> Iterator[Workload]:
    # Two products of [Sq, D] and [D, Sk] for each head, half of them below the diagonal.
    amount = 2 * 2 * _PROMPT_HEADS * _PROMPT * _PROMPT * _PROMPT_HEAD_DIM / 2
    for dtype in ("bfloat16", "float32"):
        yield Workload(
            f"attention, prefill, {dtype}",
            (dtype, "float32"),
            amount,
            partial(_prepare_prompt, device, dtype),
        )


def _prepare_prompt(device: str, dtype: str) -> Callable[[], Tensor]:
    import torch

    from torchyard_attention import create_block_mask, flex_attention, masks

    shape = (1, _PROMPT_HEADS, _PROMPT, _PROMPT_HEAD_DIM)
    query, key, value = torch.randn(3, *shape, device=device, dtype=getattr(torch, dtype))
    mask = create_block_mask(masks.causal, None, None, _PROMPT, _PROMPT, device=device)
    return lambda: flex_attention(query, key, value, block_mask=mask)
