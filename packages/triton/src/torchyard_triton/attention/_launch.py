"""What the passes of attention are launched with: programs, layouts, tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, MaskBlocks, MaskSource, ScoreMod
from torchyard_programs import Input
from torchyard_triton._launch import Launch
from torchyard_triton.attention._limits import MAX_COUNT, MAX_LENGTH, beyond_limits
from torchyard_triton.lowering import LoweredProgram, captured_values, lower

__all__ = [
    "EXACT_TILES",
    "RANGES",
    "SCORE_INPUTS",
    "Launch",
    "MaskProgram",
    "Tiles",
    "checked_sizes",
    "lowered_mask",
    "lowered_score",
    "mask_arguments",
    "padded",
    "program_arguments",
    "row_tiles",
    "tensor_arguments",
]

# A program with what it captures.
MaskProgram: TypeAlias = ScoreMod | MaskSource

SCORE_INPUTS: Final = (
    Input("s", torch.float32),
    *(Input(name, torch.int64) for name in ("b", "h", "q", "k")),
)
RANGES: Final = (
    *((name, 0, MAX_COUNT - 1) for name in ("b", "h")),
    *((name, 0, MAX_LENGTH - 1) for name in ("q", "k")),
)
# Matrix instructions take no smaller tiles.
_SMALLEST: Final = 16


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a pass is cut and compiled.

    Attributes:
        rows, keys: queries and keys of a tile: powers of two, 16 or more.
        warps, stages: of the compiled kernel.
        turned: whether the keys' gradients are computed in tiles of [keys, rows]; some matrix units
            need fewer registers for [rows, keys].
    """

    rows: int = 64
    keys: int = 64
    warps: int = 4
    stages: int = 2
    turned: bool = True

    def within(self, block_size: tuple[int, int]) -> Tiles:
        """Return tiles that are no larger than blocks need; sizes of 0 are no limits."""
        rows, keys = (
            min(tile, padded(size)) if size else tile
            for tile, size in zip((self.rows, self.keys), block_size, strict=True)
        )
        return replace(self, rows=rows, keys=keys)

    @property
    def constants(self) -> dict[str, int]:
        """A launch's constants."""
        return {
            "ROWS": self.rows,
            "KEYS": self.keys,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


# Of the second launch over marked rows, which is rarely more than a look at the marks.
EXACT_TILES: Final = Tiles(rows=16, keys=16, warps=4, stages=1)


def checked_sizes(call: AttentionCall) -> None:
    """Raise ValueError where a call is larger than kernels can index."""
    batch, heads, q_length, _ = call.query.shape
    block_size = (0, 0) if call.mask is None else call.mask.block_size
    lacking = beyond_limits(batch, heads, (q_length, call.key.shape[2]), block_size)
    if lacking:
        raise ValueError(lacking)


def padded(size: int) -> int:
    """Return the power of two, 16 or more, that holds a size."""
    return max(_SMALLEST, 1 << max(0, size - 1).bit_length())


def _traits(captured: tuple[Tensor, ...]) -> tuple[tuple[torch.dtype, int], ...]:
    return tuple((tensor.dtype, tensor.ndim) for tensor in captured)


def lowered_score(
    score_mod: ScoreMod, *, derivatives: bool = False, wanted: tuple[int, ...] = ()
) -> LoweredProgram:
    """Return a score_mod as Triton source, with derivatives where they are wanted."""
    return lower(
        score_mod.text,
        SCORE_INPUTS,
        _traits(score_mod.captured),
        name="score_mod",
        result="float32",
        derivatives=("s",) if derivatives else (),
        wanted=wanted,
        ranges=RANGES,
    )


def lowered_mask(mask_mod: MaskProgram) -> LoweredProgram:
    """Return a mask's program as Triton source."""
    return lower(
        mask_mod.text,
        SCORE_INPUTS,
        _traits(mask_mod.captured),
        name="mask_mod",
        result="bool",
        ranges=RANGES,
    )


def program_arguments(
    mod: MaskProgram | None, program: LoweredProgram | None, device: torch.device
) -> tuple[Any, tuple[Any, ...]]:
    """Return the function of a program and its captured values; None without one."""
    if mod is None or program is None:
        return None, ()
    captured = [tensor.to(device) if tensor.ndim == 0 else tensor for tensor in mod.captured]
    return program.function(), captured_values(program, captured)


def tensor_arguments(tensor: Tensor) -> tuple[Any, ...]:
    """Return a tensor of four dimensions as kernels take it."""
    return (tensor, *tensor.stride())


def mask_arguments(mask: MaskBlocks | None, like: Tensor) -> tuple[Any, ...]:
    """Return a mask as kernels take it; without one what is never read."""
    if mask is None:
        return (like, like, like, like, like, like, 1, 1, 1, 1, 1)
    batches, heads, blocks = mask.kv_num_blocks.shape
    return (
        *(mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices),
        *(mask.bits, mask.first_partial, batches, heads, blocks),
        *(mask.kv_indices.shape[3], mask.full_kv_indices.shape[3]),
    )


def row_tiles(length: int, block: int, rows: int) -> int:
    """Return how many tiles of rows there are; tiles do not cross blocks."""
    if not block:
        return -(-length // rows)
    return -(-length // block) * -(-min(block, length) // rows)
