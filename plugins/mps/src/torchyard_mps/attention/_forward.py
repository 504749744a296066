"""``forward_launch``: outputs of attention by one kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult, MaskBlocks, ScoreMod
from torchyard_mps._launch import Launch, metal_text, or_one
from torchyard_mps.attention._programs import (
    CAPTURED,
    checked_count,
    declared,
    lowered_mask,
    lowered_score,
    on_device,
    visible_text,
)
from torchyard_mps.attention._tensors import THREADS, constants, row_tiles
from torchyard_mps.lowering import LoweredProgram, header, layout_values, type_of_dtype

__all__ = ["forward_launch"]


def forward_launch(
    call: AttentionCall, *, mask_mod: ScoreMod | None = None
) -> tuple[Launch, AttentionResult]:
    """Return the launch of ``attention/1``'s forward, and the result that it fills.

    Blocks that the call's mask lists nowhere are not read. An element that a captured tensor does
    not have is NaN, and 0 of a tensor of integers.

    Args:
        call: the call, of float32, float16 or bfloat16, without dropout and pages.
        mask_mod: the program of the call's mask, over (s, b, h, q, k) as a score_mod's: kernels
            compute it instead of reading the bits of partial blocks. Without a mask in the call it
            is computed for every pair.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: programs capture more tensors than Metal has buffers for.
    """
    query, value = call.query, call.value
    batches, heads, q_length, _ = query.shape
    out = query.new_empty((batches, heads, q_length, value.shape[3]))
    lse = query.new_empty((batches, heads, q_length), dtype=torch.float32)
    # Where they are not wanted they are not written.
    max_scores = torch.empty_like(lse) if call.max_scores else lse.new_zeros(1)
    score, mask = lowered_score(call.score_mod), lowered_mask(mask_mod)
    source, captured = _source(call, score, mask, mask_mod)
    checked_count("forward_launch", captured)
    device = query.device
    score_layout, mask_layout = (
        torch.tensor(
            layout_values(program, mod.captured) if program and mod else [0], device=device
        )
        for program, mod in ((score, call.score_mod), (mask, mask_mod))
    )
    lists = _mask_tensors(call.mask, device)
    buffers = (
        *(or_one(query), or_one(call.key), or_one(value), or_one(out), or_one(lse)),
        *(max_scores, *lists, _sizes(call, out)),
        *(
            torch.tensor(call.scale, dtype=torch.float32, device=device),
            score_layout,
            mask_layout,
            *on_device(captured, device),
        ),
    )
    block = 0 if call.mask is None else call.mask.block_size[0]
    groups = (row_tiles(q_length, block), batches * heads)
    outputs = (3, 4, 5) if call.max_scores else (3, 4)
    launch = Launch(source, "attention_forward", groups, THREADS, buffers, outputs)
    result = AttentionResult(
        out, lse if call.lse else None, max_scores if call.max_scores else None
    )
    return launch, result


def _source(
    call: AttentionCall,
    score: LoweredProgram | None,
    mask: LoweredProgram | None,
    mask_mod: ScoreMod | None,
) -> tuple[str, list[Tensor]]:
    """Return the kernel's source, and the captured tensors that it takes."""
    parameters = ""
    captured: list[Tensor] = []
    calls = {"score": "s", "mask": visible_text(call.mask)}
    for name, program, mod in (("score", score, call.score_mod), ("mask", mask, mask_mod)):
        if program is None:
            continue
        names, tensors = declared(program, mod, len(captured))
        for place, (kind, tensor) in enumerate(names, CAPTURED + len(captured)):
            parameters += f"device const {kind}* {tensor} [[buffer({place})]], "
        captured += tensors
        arguments = ", ".join(("s", "b", "h", "q", "k", *(of for _, of in names), f"{name}_layout"))
        calls[name] = f"{name}_mod({arguments})"
    defined = {
        **constants(call.query, call.value, call.mask),
        "MAXIMA": str(call.max_scores).lower(),
        "SCORE": calls["score"],
        "VISIBLE": calls["mask"],
    }
    kind = type_of_dtype(call.query.dtype)
    lines = [f"typedef {kind} T;"]
    lines += [f"#define {name} {text}" for name, text in defined.items()]
    programs = [program.source for program in (score, mask) if program is not None]
    kernel = metal_text("attention/tiles", "attention/forward")
    kernel = kernel.replace("CAPTURED uint2", f"{parameters}uint2")
    return "\n".join([header(), *programs, *lines, kernel]), captured


def _mask_tensors(mask: MaskBlocks | None, device: torch.device) -> tuple[Tensor, ...]:
    """Return a mask's tensors as the kernel takes them; without one what is never read."""
    if mask is None:
        none, bits, wide = (
            torch.zeros(1, dtype=dtype, device=device)
            for dtype in (torch.int32, torch.uint8, torch.int64)
        )
        return none, none, none, none, bits, wide
    return tuple(or_one(tensor) for tensor in mask.tensors)


def _sizes(call: AttentionCall, out: Tensor) -> Tensor:
    lists: tuple[int, ...] = (1, 1, 1, 1, 1)
    if call.mask is not None:
        lists = (*call.mask.kv_indices.shape, call.mask.full_kv_indices.shape[3])
    heads, kv_heads = call.query.shape[1], call.key.shape[1]
    strides = [
        stride for tensor in (call.query, call.key, call.value, out) for stride in tensor.stride()
    ]
    counts = (heads, heads // max(1, kv_heads), call.query.shape[2], call.key.shape[2])
    return torch.tensor([*strides, *counts, *lists], device=call.query.device)
