"""``forward_launch``: outputs of attention by one kernel."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult, MaskBlocks, ScoreMod
from torchyard_mps._launch import Launch, metal_text
from torchyard_mps.lowering import TYPES, LoweredProgram, header, layout_values, lower
from torchyard_programs import Input, UnsupportedProgramError

__all__ = ["forward_launch", "lacking_of_program"]

_INPUTS: Final = (
    Input("s", torch.float32),
    *(Input(name, torch.int64) for name in ("b", "h", "q", "k")),
)
# As the kernel has them, in int: sizes that calls may have.
_RANGES: Final = (
    ("b", 0, 2**20 - 1),
    ("h", 0, 2**20 - 1),
    ("q", 0, 2**28 - 1),
    ("k", 0, 2**28 - 1),
)
_ROWS: Final = 32
_THREADS: Final = 128
# The first buffer of captured tensors, and how many buffers Metal has.
_CAPTURED: Final = 16
_MOST_BUFFERS: Final = 31


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
    score = _lowered(call.score_mod, "score_mod", "float32")
    mask = _lowered(mask_mod, "mask_mod", "bool")
    source, captured = _source(call, score, mask, mask_mod)
    device = query.device
    score_layout, mask_layout = (
        torch.tensor(
            layout_values(program, mod.captured) if program and mod else [0], device=device
        )
        for program, mod in ((score, call.score_mod), (mask, mask_mod))
    )
    lists = _mask_tensors(call.mask, device)
    buffers = (
        *(_or_one(query), _or_one(call.key), _or_one(value), _or_one(out), _or_one(lse)),
        *(max_scores, *lists, _sizes(call, out)),
        *(
            torch.tensor(call.scale, dtype=torch.float32, device=device),
            score_layout,
            mask_layout,
            *captured,
        ),
    )
    if len(buffers) > _MOST_BUFFERS:
        raise ValueError(
            f"forward_launch: programs: expected at most {_MOST_BUFFERS - _CAPTURED} captured "
            f"tensors, got {len(captured)}: Metal has {_MOST_BUFFERS} buffers; stack some of them"
        )
    block = 0 if call.mask is None else call.mask.block_size[0]
    groups = (_row_tiles(q_length, block), batches * heads)
    outputs = (3, 4, 5) if call.max_scores else (3, 4)
    launch = Launch(source, "attention_forward", groups, _THREADS, buffers, outputs)
    result = AttentionResult(
        out, lse if call.lse else None, max_scores if call.max_scores else None
    )
    return launch, result


def lacking_of_program(text: str, captured: tuple[tuple[str, int], ...]) -> str:
    """Return what a score_mod's program needs and the kernel lacks; empty where it computes it.

    Args:
        text: the program.
        captured: dtype name and number of dimensions of each captured tensor.
    """
    traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
    try:
        program = lower(text, _INPUTS, traits, name="score_mod", result="float32", ranges=_RANGES)
    except UnsupportedProgramError as error:
        return f"score_mod: {error}, which the kernel does not compute"
    if len(program.tensors) > _MOST_BUFFERS - _CAPTURED:
        return (
            f"score_mod: expected at most {_MOST_BUFFERS - _CAPTURED} captured tensors, got "
            f"{len(program.tensors)}: Metal has {_MOST_BUFFERS} buffers"
        )
    return ""


def _lowered(mod: ScoreMod | None, name: str, result: str) -> LoweredProgram | None:
    if mod is None:
        return None
    traits = tuple((tensor.dtype, tensor.ndim) for tensor in mod.captured)
    return lower(mod.text, _INPUTS, traits, name=name, result=result, ranges=_RANGES)


def _source(
    call: AttentionCall,
    score: LoweredProgram | None,
    mask: LoweredProgram | None,
    mask_mod: ScoreMod | None,
) -> tuple[str, list[Tensor]]:
    """Return the kernel's source, and the captured tensors that it takes."""
    declared = ""
    captured: list[Tensor] = []
    calls = {"score": "s", "mask": _visible(call.mask)}
    for name, program, mod in (("score", score, call.score_mod), ("mask", mask, mask_mod)):
        if program is None or mod is None:
            continue
        given = []
        for number, kind, _ in program.tensors:
            index = _CAPTURED + len(captured)
            declared += f"device const {kind}* {name}_c{number} [[buffer({index})]], "
            given.append(f"{name}_c{number}")
            captured.append(mod.captured[number])
        arguments = ", ".join(("s", "b", "h", "q", "k", *given, f"{name}_layout"))
        calls[name] = f"{name}_mod({arguments})"
    block, key_block = (0, 0) if call.mask is None else call.mask.block_size
    constants = {
        "SIZE": call.query.shape[3],
        "VALUE_SIZE": call.value.shape[3],
        "BLOCK": block,
        "KEY_BLOCK": key_block,
        "LISTS": str(call.mask is not None).lower(),
        "MAXIMA": str(call.max_scores).lower(),
        "SCORE": calls["score"],
        "VISIBLE": calls["mask"],
    }
    kind = TYPES[str(call.query.dtype).removeprefix("torch.")]
    lines = [f"typedef {kind} T;"]
    lines += [f"#define {name} {text}" for name, text in constants.items()]
    programs = [program.source for program in (score, mask) if program is not None]
    library = header()
    kernel = metal_text("attention_forward").replace("CAPTURED uint2", f"{declared}uint2")
    return "\n".join([library, *programs, *lines, kernel]), captured


def _visible(mask: MaskBlocks | None) -> str:
    """Return the expression for one bit of a partial block."""
    if mask is None:
        return "true"
    line = "(slot * BLOCK + (row - block * BLOCK)) * ((KEY_BLOCK + 7) / 8)"
    inner = "(k - key_block * KEY_BLOCK)"
    return f"((bits[{line} + {inner} / 8] >> ({inner} % 8) & 1) != 0)"


def _mask_tensors(mask: MaskBlocks | None, device: torch.device) -> tuple[Tensor, ...]:
    """Return a mask's tensors as the kernel takes them; without one what is never read."""
    if mask is None:
        none, bits, wide = (
            torch.zeros(1, dtype=dtype, device=device)
            for dtype in (torch.int32, torch.uint8, torch.int64)
        )
        return none, none, none, none, bits, wide
    lists = (mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices)
    return tuple(_or_one(tensor) for tensor in (*lists, mask.bits, mask.first_partial))


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


def _or_one(tensor: Tensor) -> Tensor:
    """Return a tensor, or one element where it has none: a buffer has memory."""
    return tensor if tensor.numel() else tensor.new_zeros(1)


def _row_tiles(length: int, block: int) -> int:
    """Return how many tiles of rows there are; tiles do not cross blocks."""
    if not block:
        return -(-length // _ROWS)
    return -(-length // block) * -(-min(block, length) // _ROWS)
