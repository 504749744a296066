"""Calls that implementations are tested with. Needs no pytest.

A plugin's author builds calls with :func:`make_call`, runs their implementation and judges what it
returned with :mod:`torchyard_attention.tolerance`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._evaluation import (
    blocks_of,
    first_slots,
    ordered,
    pack_bits,
)
from torchyard_attention._mask_blocks._source import versions
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import MASK_INPUTS, SCORE_INPUTS, trace
from torchyard_attention._ops import _computation
from torchyard_attention.contract import (
    AttentionCall,
    AttentionRequest,
    MaskBlocks,
    MaskSource,
    ScoreMod,
)
from torchyard_attention.dropout import Dropout

__all__ = ["make_call", "mask_blocks", "request_of", "traced_mask_mod", "traced_score_mod"]


def make_call(
    *,
    seed: int = 0,
    batch: int = 2,
    q_heads: int = 4,
    kv_heads: int | None = None,
    q_length: int = 64,
    kv_length: int | None = None,
    head_dim: int = 32,
    value_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    visible: Tensor | None = None,
    block_size: tuple[int, int] = (128, 128),
    separate_full_blocks: bool = True,
    score_mod: Callable[..., Any] | None = None,
    scale: float | None = None,
    lse: bool = True,
    max_scores: bool = False,
    captured_grad: bool = True,
    dropout_p: float = 0.0,
) -> AttentionCall:
    """Build a call on normally distributed inputs.

    Args:
        seed: of the inputs; the same on every device.
        batch, q_heads, kv_heads, q_length, kv_length, head_dim, value_dim: sizes; None: as the
            query's.
        dtype, device: of the inputs; what score_mod captures is moved to the device, too.
        visible: bool [Bm, Hm, Sq, Sk], or fewer leading dimensions; None: no mask.
        block_size, separate_full_blocks: of the mask, see :func:`mask_blocks`.
        score_mod: ``(score, b, h, q_idx, kv_idx) -> score``; None: none.
        scale: of the raw scores; None: 1 / sqrt(head_dim).
        lse, max_scores: whether the result holds them.
        captured_grad: whether a backward returns the gradients of the floating point tensors
            that score_mod captures.
        dropout_p: with what probability a weight is dropped; the mask follows from ``seed``.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).to(device)

    kv_heads = q_heads if kv_heads is None else kv_heads
    kv_length = q_length if kv_length is None else kv_length
    value_dim = head_dim if value_dim is None else value_dim
    mask = None
    if visible is not None:
        dense = visible[(None,) * (4 - visible.ndim)].to(device)
        mask = mask_blocks(dense, block_size, separate_full_blocks=separate_full_blocks)
    mod = None if score_mod is None else traced_score_mod(score_mod, device, dtype)
    captured = () if mod is None else mod.captured
    return AttentionCall(
        query=normal(batch, q_heads, q_length, head_dim),
        key=normal(batch, kv_heads, kv_length, head_dim),
        value=normal(batch, kv_heads, kv_length, value_dim),
        score_mod=mod,
        mask=mask,
        scale=max(1, head_dim) ** -0.5 if scale is None else scale,
        lse=lse,
        max_scores=max_scores,
        captured_grad=tuple(captured_grad and t.is_floating_point() for t in captured),
        dropout=_dropout(dropout_p, seed, device),
    )


def _dropout(probability: float, seed: int, device: torch.device | str) -> Dropout | None:
    if not probability:
        return None
    generator = torch.Generator().manual_seed(seed)
    return Dropout(probability, torch.randint(2**62, (2,), generator=generator).to(device))


def mask_blocks(
    visible: Tensor, block_size: tuple[int, int] = (128, 128), *, separate_full_blocks: bool = True
) -> MaskBlocks:
    """Return a dense mask as blocks.

    Args:
        visible: bool [Bm, Hm, Sq, Sk].
        block_size: (BQ, BK).
        separate_full_blocks: False lists wholly visible blocks as partial ones, whose meaning is
            the same.
    """
    rows, keys = block_size
    batch, heads, q_length, kv_length = visible.shape
    padding = (0, -kv_length % keys, 0, -q_length % rows)

    def cut(dense: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(dense, padding)
        q_blocks, kv_blocks = padded.shape[2] // rows, padded.shape[3] // keys
        return padded.view(batch, heads, q_blocks, rows, kv_blocks, keys).transpose(3, 4)

    blocks, inside = cut(visible), cut(torch.ones_like(visible))
    some = blocks.any(dim=-1).any(dim=-1)
    whole = some & (blocks == inside).all(dim=-1).all(dim=-1)
    if not separate_full_blocks:
        whole = torch.zeros_like(whole)
    partial = some & ~whole
    kv_num_blocks, kv_indices = _narrow(*ordered(partial))
    full_kv_num_blocks, full_kv_indices = _narrow(*ordered(whole))
    return MaskBlocks(
        block_size=block_size,
        kv_num_blocks=kv_num_blocks,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_num_blocks,
        full_kv_indices=full_kv_indices,
        bits=pack_bits(blocks[partial]),
        first_partial=first_slots(kv_num_blocks),
    )


def _narrow(counts: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return lists that are as wide as their longest row, so that nobody relies on more."""
    longest = int(counts.max()) if counts.numel() else 0
    return counts, indices[..., :longest].contiguous()


def traced_score_mod(
    function: Callable[..., Any],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> ScoreMod:
    """Trace ``(score, b, h, q_idx, kv_idx) -> score`` for inputs of ``dtype``.

    What it captures is moved to the device.
    """
    scores = torch.float64 if dtype == torch.float64 else torch.float32
    place = torch.device(device)
    text, captured = trace(function, "score_mod", SCORE_INPUTS, scores, place, anywhere=True)
    return TracedMod(text, tuple(tensor.to(device) for tensor in captured))


def traced_mask_mod(
    function: Callable[..., Any],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int] = (128, 128),
    device: torch.device | str = "cpu",
) -> MaskBlocks:
    """Return a mask with the program that it was evaluated from, which implementations may read.

    Args:
        function: ``(b, h, q_idx, kv_idx) -> bool``; what it captures is moved to the device.
        sizes: (Bm, Hm, Sq, Sk).
        block_size: (BQ, BK).
        device: of the mask.
    """
    place = torch.device(device)
    text, found = trace(function, "mask_mod", MASK_INPUTS, torch.float32, place, anywhere=True)
    captured = tuple(tensor.to(place) for tensor in found)
    blocks = blocks_of(text, captured, sizes, block_size, place)
    return replace(blocks, source=MaskSource(text, captured, versions(captured)))


def request_of(
    call: AttentionCall, *, causal: bool = False, grad: bool = False, deterministic: bool = False
) -> AttentionRequest:
    """Describe a call, as flex_attention does.

    Args:
        call: the call.
        causal: whether its mask is exactly ``q >= k``.
        grad: whether gradients will be asked for.
        deterministic: whether they must be the same in every run.
    """
    mask = None if call.mask is None else replace(call.mask, causal=causal)
    return _computation.request_of(replace(call, mask=mask, grad=grad), deterministic=deterministic)
