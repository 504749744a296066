"""``forward``: outputs of attention by one kernel, and by a second one where keys are cut."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult, ScoreMod
from torchyard_mps._launch import Launch, metal_text, or_one
from torchyard_mps._runner import run
from torchyard_mps.attention._merge import merge_launch
from torchyard_mps.attention._parts import PART, Parts, key_length, parts_of
from torchyard_mps.attention._programs import (
    CAPTURED,
    checked_count,
    declared,
    layouts,
    lowered_mask,
    lowered_score,
    on_device,
    visible_text,
)
from torchyard_mps.attention._tensors import constants, no_lists, type_definition
from torchyard_mps.lowering import header

__all__ = ["forward", "forward_launches"]

# Where the layouts of captured tensors begin in what the kernel calls ``sizes``.
_LAYOUTS: Final = 29
# out, lse and max_scores; the last is of one element where it is not wanted.
_Outputs = tuple[Tensor, Tensor, Tensor]


def forward(call: AttentionCall, *, mask_mod: ScoreMod | None = None) -> AttentionResult:
    """Compute ``attention/1``. The same inputs give the same bits in every run.

    Where queries are few, heads that share a key head are computed together, and several
    threadgroups share the keys, 256 each; other calls are computed by one threadgroup per tile of
    rows. Which of them is a function of the call's sizes. Keys in pages are read in place.

    Args:
        call, mask_mod: as of :func:`forward_launches`.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: programs capture more tensors than Metal has buffers for.
    """
    launches, result = forward_launches(call, mask_mod=mask_mod)
    for launch in launches:
        run(launch)
    return result


def forward_launches(
    call: AttentionCall, *, mask_mod: ScoreMod | None = None, part: int = PART
) -> tuple[tuple[Launch, ...], AttentionResult]:
    """Return the launches of ``attention/1``'s forward, in order, and the result that they fill.

    Blocks that the call's mask lists nowhere are not read. An element that a captured tensor does
    not have is NaN, and 0 of a tensor of integers.

    Args:
        call: the call, of float32, float16 or bfloat16, without dropout; with pages or without.
        mask_mod: the program of the call's mask, over (s, b, h, q, k) as a score_mod's: kernels
            compute it instead of reading the bits of partial blocks. Without a mask in the call it
            is computed for every pair.
        part: keys that a threadgroup takes where queries are few, a multiple of 32.

    Returns:
        No launch where there is nothing to compute, two where keys are in several parts, or one.

    Raises:
        UnsupportedProgramError: a program has what kernels do not compute.
        ValueError: programs capture more tensors than Metal has buffers for.
    """
    query = call.query
    out = query.new_empty((*query.shape[:3], call.value.shape[3]))
    lse = query.new_empty(query.shape[:3], dtype=torch.float32)
    # Where they are not wanted they are not written.
    max_scores = torch.empty_like(lse) if call.max_scores else lse.new_zeros(1)
    outputs = (out, lse, max_scores)
    parts = parts_of(call, part)
    if parts.count == 1:
        launches = [_launch(call, mask_mod, parts, outputs)]
    else:
        maxima = (parts.count, *lse.shape) if call.max_scores else (1,)
        cut = (
            lse.new_empty((parts.count, *out.shape)),
            lse.new_empty((parts.count, *lse.shape)),
            lse.new_empty(maxima),
        )
        launches = [
            _launch(call, mask_mod, parts, cut),
            merge_launch(cut, outputs, maxima=call.max_scores),
        ]
    result = AttentionResult(
        out, lse if call.lse else None, max_scores if call.max_scores else None
    )
    return tuple(launch for launch in launches if 0 not in launch.groups), result


def _launch(
    call: AttentionCall, mask_mod: ScoreMod | None, parts: Parts, outputs: _Outputs
) -> Launch:
    """Return the launch that fills outputs, or the outputs of each part, as float32."""
    query, device = call.query, call.query.device
    batches, heads = query.shape[:2]
    source, layout, captured = _source(call, mask_mod, parts, outputs[0].dtype)
    lists, list_sizes = no_lists(device)
    if call.mask is not None:
        lists = tuple(or_one(tensor) for tensor in call.mask.tensors)
        list_sizes = [*call.mask.kv_indices.shape, call.mask.full_kv_indices.shape[3]]
    table = lengths = torch.zeros(1, dtype=torch.int32, device=device)
    width = 0
    if call.pages is not None:
        table, lengths = or_one(call.pages.table), or_one(call.pages.lengths)
        width = call.pages.table.shape[1]
    tensors = (query, call.key, call.value, outputs[0][0] if parts.count > 1 else outputs[0])
    strides = [stride for tensor in tensors for stride in tensor.stride()]
    group = heads // max(1, call.key.shape[1])
    counts = (heads, group, query.shape[2], key_length(call))
    cut = (parts.count, parts.steps, batches * heads * query.shape[2], width)
    sizes = torch.tensor([*strides, *counts, *list_sizes, *cut, *layout], device=device)
    buffers = (
        *(or_one(tensor) for tensor in (query, call.key, call.value, *outputs)),
        *(*lists, sizes, torch.tensor(call.scale, dtype=torch.float32, device=device)),
        *(table, lengths, *on_device(captured, device)),
    )
    groups = (parts.tiles * parts.count, batches * heads // parts.fold)
    indices = (3, 4, 5) if call.max_scores else (3, 4)
    return Launch(source, "attention_forward", groups, parts.threads, buffers, indices)


def _source(
    call: AttentionCall, mask_mod: ScoreMod | None, parts: Parts, out: torch.dtype
) -> tuple[str, list[int], list[Tensor]]:
    """Return the kernel's source, the layouts of captured tensors, and those tensors."""
    score, mask = lowered_score(call.score_mod), lowered_mask(mask_mod)
    score_layout, mask_layout = layouts((score, call.score_mod), (mask, mask_mod))
    places = {"score": _LAYOUTS, "mask": _LAYOUTS + len(score_layout)}
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
        given = ("s", "b", "h", "q", "k", *(of for _, of in names), f"sizes + {places[name]}")
        calls[name] = f"{name}_mod({', '.join(given)})"
    checked_count("forward", captured)
    defined = {
        **constants(call.query, call.value, call.mask, parts.threads),
        "FOLD": parts.fold,
        "PAGE": 0 if call.pages is None else call.key.shape[2],
        "MAXIMA": str(call.max_scores).lower(),
        "SCORE": calls["score"],
        "VISIBLE": calls["mask"],
    }
    lines = [type_definition("T", call.query.dtype), type_definition("OUT", out)]
    lines += [f"#define {name} {text}" for name, text in defined.items()]
    programs = [program.source for program in (score, mask) if program is not None]
    kernel = metal_text("attention/tiles", "attention/forward")
    kernel = kernel.replace("CAPTURED uint2", f"{parameters}uint2")
    return "\n".join([header(), *programs, *lines, kernel]), [*score_layout, *mask_layout], captured
