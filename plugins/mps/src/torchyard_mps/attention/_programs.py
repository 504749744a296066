"""Programs of scores and masks, as the kernels of attention call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import MaskBlocks, ScoreMod
from torchyard_mps.lowering import LoweredProgram, layout_values, lower
from torchyard_programs import Input, UnsupportedProgramError

__all__ = [
    "CAPTURED",
    "MOST_CAPTURED",
    "checked_count",
    "declared",
    "lacking_of_program",
    "layouts",
    "lowered_mask",
    "lowered_score",
    "on_device",
    "visible_text",
]

_INPUTS: Final = (
    Input("s", torch.float32),
    *(Input(name, torch.int64) for name in ("b", "h", "q", "k")),
)
# As kernels have them, in int: sizes that calls may have.
_RANGES: Final = (
    ("b", 0, 2**20 - 1),
    ("h", 0, 2**20 - 1),
    ("q", 0, 2**28 - 1),
    ("k", 0, 2**28 - 1),
)
# The first buffer of captured tensors, and how many the 31 buffers of Metal leave for them.
CAPTURED: Final = 16
MOST_CAPTURED: Final = 15


def lacking_of_program(
    text: str, captured: tuple[tuple[str, int], ...], *, wanted: tuple[int, ...] | None = None
) -> str:
    """Return what a score_mod's program needs and kernels lack; empty where they compute it.

    Args:
        text: the program.
        captured: dtype name and number of dimensions of each captured tensor.
        wanted: numbers of captured tensors whose gradients are wanted; None: no derivatives.
    """
    traits = tuple((getattr(torch, name), ndim) for name, ndim in captured)
    try:
        program = _lower(text, traits, "score_mod", "float32", wanted)
    except UnsupportedProgramError as error:
        return f"score_mod: {error}, which the kernel does not compute"
    if len(program.tensors) > MOST_CAPTURED:
        return (
            f"score_mod: expected at most {MOST_CAPTURED} captured tensors, got "
            f"{len(program.tensors)}: Metal has 31 buffers"
        )
    return ""


def lowered_score(
    mod: ScoreMod | None, *, wanted: tuple[int, ...] | None = None
) -> LoweredProgram | None:
    """Return a score_mod's program; with derivatives where ``wanted`` is not None."""
    return None if mod is None else _lower(mod.text, _traits(mod), "score_mod", "float32", wanted)


def lowered_mask(mod: ScoreMod | None) -> LoweredProgram | None:
    """Return the program of a mask."""
    return None if mod is None else _lower(mod.text, _traits(mod), "mask_mod", "bool", None)


def declared(
    program: LoweredProgram | None, mod: ScoreMod | None, first: int
) -> tuple[list[tuple[str, str]], list[Tensor]]:
    """Return (kind, name) of the captured tensors that a program reads, and the tensors.

    Args:
        program: the program.
        mod: what it was lowered from.
        first: how many captured tensors other programs read.
    """
    if program is None or mod is None:
        return [], []
    names = [
        (kind, f"captured{first + place}") for place, (_, kind, _) in enumerate(program.tensors)
    ]
    return names, [mod.captured[number] for number, _, _ in program.tensors]


def layouts(
    *programs: tuple[LoweredProgram | None, ScoreMod | None],
) -> tuple[list[int], ...]:
    """Return sizes and strides of what each of some programs captures."""
    return tuple(
        layout_values(program, mod.captured) if program and mod else [0]
        for program, mod in programs
    )


def checked_count(of: str, captured: Sequence[Tensor]) -> None:
    """Raise ValueError where programs capture more tensors than Metal has buffers for."""
    if len(captured) > MOST_CAPTURED:
        raise ValueError(
            f"{of}: programs: expected at most {MOST_CAPTURED} captured tensors, got "
            f"{len(captured)}: Metal has 31 buffers; stack some of them"
        )


def on_device(captured: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return captured tensors; single numbers may be on the CPU, and are copied."""
    return [tensor.to(device) if tensor.ndim == 0 else tensor for tensor in captured]


def visible_text(mask: MaskBlocks | None) -> str:
    """Return the expression for one bit of a partial block."""
    if mask is None:
        return "true"
    line = "(slot * BLOCK + (row - block * BLOCK)) * ((KEY_BLOCK + 7) / 8)"
    inner = "(k - key_block * KEY_BLOCK)"
    return f"((bits[{line} + {inner} / 8] >> ({inner} % 8) & 1) != 0)"


def _lower(
    text: str,
    traits: tuple[tuple[torch.dtype, int], ...],
    name: str,
    result: str,
    wanted: tuple[int, ...] | None,
) -> LoweredProgram:
    return lower(
        text,
        _INPUTS,
        traits,
        name=name,
        result=result,
        derivative="" if wanted is None else "s",
        wanted=wanted or (),
        ranges=_RANGES,
    )


def _traits(mod: ScoreMod) -> tuple[tuple[torch.dtype, int], ...]:
    return tuple((tensor.dtype, tensor.ndim) for tensor in mod.captured)
