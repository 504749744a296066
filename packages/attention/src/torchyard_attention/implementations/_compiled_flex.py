"""The forward of attention.flex: torch's template, with the program and the mask as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from torchyard_attention._mods._evaluate import scalar_function
from torchyard_attention._torch_compat import recompile_limit_error
from torchyard_attention.contract import AttentionCall, AttentionResult
from torchyard_attention.implementations._tile_math import finite
from torchyard_attention.implementations._tiled_forward import tiled_forward

# Blocks of a call without a mask: torch's template without blocks holds Sq x Sk scores per thread.
_BLOCK: Final = 128
_CACHED_VARIANTS: Final = 256

_Compiled = Callable[..., Any]


class FlexRecompileError(RuntimeError):
    """A variant that was compiled for one shape would have been compiled again."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """Everything that compiled code depends on."""

    text: str
    tensors: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device], ...]
    captured: int
    block_size: tuple[int, int]
    masked: bool
    scale: float
    lse: bool
    max_scores: bool


@torch.no_grad()
def compiled_forward(call: AttentionCall) -> AttentionResult:
    """Compute ``attention/1``; compiles for seconds when a variant is first seen.

    Raises:
        FlexRecompileError: torch wants to compile a variant again and, in the end, run it eagerly
            on Sq x Sk scores.
    """
    captured = call.score_mod.captured if call.score_mod is not None else ()
    tensors = [call.query, call.key, call.value, *captured, *_blocks(call)]
    tensors = [tensor.detach() for tensor in tensors]
    variant = _Variant(
        text=call.score_mod.text if call.score_mod is not None else "",
        tensors=tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors),
        captured=len(captured),
        block_size=call.mask.block_size if call.mask is not None else (_BLOCK, _BLOCK),
        masked=call.mask is not None,
        scale=call.scale,
        lse=call.lse,
        max_scores=call.max_scores,
    )
    try:
        out, lse, max_scores = _compiled(variant)(*tensors)
    except recompile_limit_error() as error:
        raise FlexRecompileError(
            f"attention.flex: torch asked to compile {variant} again although nothing in it "
            f"changed; use implementation='attention.tiled'"
        ) from error
    hides = call.mask is not None or call.score_mod is not None
    # torch multiplies hidden values by 0, which lets NaN and inf through.
    if hides and not finite(out):
        return tiled_forward(call)
    return AttentionResult(
        out.contiguous(),
        lse.contiguous() if lse is not None else None,
        max_scores.contiguous() if max_scores is not None else None,
    )


def _blocks(call: AttentionCall) -> tuple[Tensor, ...]:
    """Return the lists of partial and of full blocks, each block's slot in the bits, the bits."""
    mask = call.mask
    device = call.query.device
    if mask is None:
        shape = (1, 1, -(-call.query.shape[2] // _BLOCK), -(-call.key.shape[2] // _BLOCK))
        none = torch.zeros(shape[:3], dtype=torch.int32, device=device)
        every = torch.arange(shape[3], dtype=torch.int32, device=device).expand(shape).contiguous()
        return none, every, none + shape[3], every
    # torch reads the number of key blocks off the lists.
    kv_blocks = -(-call.key.shape[2] // mask.block_size[1])
    partial, full = (
        torch.nn.functional.pad(indices, (0, kv_blocks - indices.shape[3]))
        if indices.shape[3] != kv_blocks
        else indices
        for indices in (mask.kv_indices, mask.full_kv_indices)
    )
    place = torch.arange(kv_blocks, device=device)
    listed = place < mask.kv_num_blocks.unsqueeze(-1)
    count = len(mask.bits)
    # Two slots more, for blocks that are hidden or visible whole, and a rounded count, so that
    # masks with other numbers of partial blocks run the same code.
    rounded = 1 << (count + 1).bit_length()
    bits = mask.bits.new_zeros((rounded, *mask.bits.shape[1:]))
    bits[:count] = mask.bits
    bits[rounded - 1] = 255
    slots = torch.full_like(partial, rounded - 2)
    whole = place < mask.full_kv_num_blocks.unsqueeze(-1)
    for lists, seen, values in (
        (partial, listed, mask.first_partial.unsqueeze(-1) + place),
        (full, whole, torch.full_like(place, rounded - 1)),
    ):
        at = seen.nonzero(as_tuple=True)
        slots[(*at[:3], lists[at].long())] = values.expand_as(lists)[at].to(slots.dtype)
    return (
        mask.kv_num_blocks,
        partial,
        mask.full_kv_num_blocks,
        full,
        slots,
        bits,
    )


@lru_cache(maxsize=_CACHED_VARIANTS)
def _compiled(variant: _Variant) -> _Compiled:
    """Return code for one variant, which never counts against another's recompilations."""
    modify = scalar_function(variant.text) if variant.text else None
    rows, keys = variant.block_size
    split = 3 + variant.captured
    lengths = (variant.tensors[0][0][2], variant.tensors[1][0][2])
    shared_batch, shared_head = (size == 1 for size in variant.tensors[split][0][:2])
    aux = AuxRequest(lse=variant.lse, max_scores=variant.max_scores)

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        query, key, value = tensors[:3]
        captured = tensors[3:split]
        lists = tensors[split:]

        def score_mod(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            assert modify is not None
            modified: Tensor = modify(score, b, h, q, k, *captured)
            return modified

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            slots, bits = lists[4], lists[5]
            row, column = q // rows, k // keys
            slot = slots[0 if shared_batch else b, 0 if shared_head else h, row, column]
            byte = bits[slot, q - row * rows, (k - column * keys) // 8]
            return ((byte >> ((k - column * keys) % 8)) & 1) != 0

        block_mask = BlockMask.from_kv_blocks(
            lists[0],
            lists[1],
            lists[2],
            lists[3],
            BLOCK_SIZE=variant.block_size,
            mask_mod=mask_mod if variant.masked else None,
            seq_lengths=lengths,
            compute_q_blocks=False,
        )
        result = flex_attention(
            query,
            key,
            value,
            score_mod=None if modify is None else score_mod,
            block_mask=block_mask,
            scale=variant.scale,
            enable_gqa=query.shape[1] != key.shape[1],
            return_aux=aux if variant.lse or variant.max_scores else None,
        )
        if isinstance(result, tuple):
            return result[0], result[1].lse, result[1].max_scores
        return result, None, None

    # Dynamo keeps compiled code, and counts recompilations, per code object.
    alone = FunctionType(
        run.__code__.replace(), run.__globals__, run.__name__, None, run.__closure__
    )
    compiled: _Compiled = torch.compile(alone, fullgraph=True, dynamic=False)
    return compiled
