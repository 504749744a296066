"""``forward``: outputs of attention by one kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult, ScoreMod
from torchyard_triton.attention._launch import (
    Launch,
    Tiles,
    lowered_mask,
    lowered_score,
    mask_arguments,
    padded,
    program_arguments,
    row_tiles,
    tensor_arguments,
)

__all__ = ["forward", "forward_launch"]


def forward(
    call: AttentionCall,
    *,
    mask_mod: ScoreMod | None = None,
    sinks: Tensor | None = None,
    tiles: Tiles | None = None,
) -> AttentionResult:
    """Compute ``attention/1``.

    Blocks that the call's mask lists nowhere are not read. An element that a captured tensor does
    not have is NaN, and 0 of a tensor of integers.

    Args:
        call: the call, of float32, float16 or bfloat16, without dropout and pages.
        mask_mod: the program of the call's mask, over (s, b, h, q, k) as a score_mod's: kernels
            compute it instead of reading the bits of partial blocks. Without a mask in the call it
            is computed for every pair.
        sinks: float32 [Hq]: each adds exp(sinks[h]) to the softmax's sum of its head's rows.
        tiles: None: the default of the device's architecture.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
    """
    launch, result = forward_launch(call, mask_mod=mask_mod, sinks=sinks, tiles=tiles)
    launch.run()
    return result


def forward_launch(
    call: AttentionCall,
    *,
    mask_mod: ScoreMod | None = None,
    sinks: Tensor | None = None,
    tiles: Tiles | None = None,
) -> tuple[Launch, AttentionResult]:
    """Return the launch of a forward, and the result that it fills. Arguments as of it."""
    from torchyard_triton.device.attention.forward import attention_forward

    query, key, value = call.query, call.key, call.value
    batches, heads, q_length, head_dim = query.shape
    kv_heads, kv_length, value_dim = value.shape[1:]
    out = query.new_empty((batches, heads, q_length, value_dim))
    lse = query.new_empty((batches, heads, q_length), dtype=torch.float32)
    max_scores = torch.empty_like(lse) if call.max_scores else None
    block, key_block = (0, 0) if call.mask is None else call.mask.block_size
    tiles = (Tiles() if tiles is None else tiles).within(
        (min(block or q_length, q_length), min(key_block or kv_length, kv_length))
    )
    score = None if call.score_mod is None else lowered_score(call.score_mod)
    mask = None if mask_mod is None else lowered_mask(mask_mod)
    score_function, captured = program_arguments(call.score_mod, score, query.device)
    mask_function, mask_captured = program_arguments(mask_mod, mask, query.device)
    arguments = (
        tensor_arguments(query),
        tensor_arguments(key),
        tensor_arguments(value),
        tensor_arguments(out),
        lse,
        lse if max_scores is None else max_scores,
        mask_arguments(call.mask, lse),
        lse if sinks is None else sinks,
        captured,
        mask_captured,
        call.scale,
        heads,
        heads // max(1, kv_heads),
        q_length,
        kv_length,
    )
    constants = {
        "SCORE": score_function,
        "MASK": mask_function,
        "LISTS": call.mask is not None,
        "SINKS": sinks is not None,
        "MAXIMA": max_scores is not None,
        "BLOCK": block,
        "KEY_BLOCK": key_block,
        "SIZE": head_dim,
        "PADDED": padded(head_dim),
        "VALUE_SIZE": value_dim,
        "VALUE_PADDED": padded(value_dim),
        "ROWS": tiles.rows,
        "KEYS": tiles.keys,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
    grid = (row_tiles(q_length, block, tiles.rows), batches * heads)
    launch = Launch(attention_forward, grid, arguments, constants)
    return launch, AttentionResult(out, lse if call.lse else None, max_scores)
