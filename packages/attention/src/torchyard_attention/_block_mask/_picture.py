"""A block mask as a picture of characters."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchyard_attention._torch_compat import is_fake_mode_active

if TYPE_CHECKING:
    from torchyard_attention._block_mask._mask import BlockMask

__all__ = ["described", "picture"]

_HIDDEN, _PARTIAL, _FULL = " ", "░", "█"


def picture(visible: Tensor, grid_size: tuple[int, int], limit: int) -> str:
    """Draw which blocks are visible: a full cell where all of its blocks are, at least in part.

    Args:
        visible: [B, H, Qb, Kb] of 0 and 1.
        grid_size: the most rows and columns of the picture; -1: one cell per block.
        limit: the most pictures, of a batch and a head each.
    """
    batch, heads, rows, columns = visible.shape
    most = [
        cells if cells > 0 else size for cells, size in zip(grid_size, (rows, columns), strict=True)
    ]
    grid = (most[0], most[1])
    pictures = []
    for place in itertools.islice(itertools.product(range(batch), range(heads)), limit):
        pictures.append(f"{place}\n{_drawn(visible[place], grid)}")
    if batch * heads > limit:
        pictures.append(
            f"and {batch * heads - limit} more; give to_string() a larger limit, or index the mask "
            f"as [batch, head]"
        )
    return "\n".join(pictures)


def _drawn(visible: Tensor, grid: tuple[int, int]) -> str:
    if not visible.numel():
        return ""
    height, width = (-(-size // most) for size, most in zip(visible.shape, grid, strict=True))
    lines = []
    for rows in torch.split(visible.to(torch.float32), height):
        cells = [float(cell.mean()) for cell in torch.split(rows, width, dim=1)]
        lines.append(
            "".join(
                2 * (_FULL if cell == 1 else _HIDDEN if cell == 0 else _PARTIAL) for cell in cells
            )
        )
    return "".join(f"{line}\n" for line in lines)


def described(mask: BlockMask) -> str:
    """Return the repr of a mask: its sizes, and its picture where there is data."""
    function = mask.mask_mod
    name = getattr(function, "__name__", None if function is None else type(function).__name__)
    sizes = f"shape={mask.shape}, BLOCK_SIZE={mask.BLOCK_SIZE}, mask_mod={name}"
    counts = mask.kv_num_blocks
    if counts.is_meta or is_fake_mode_active(counts):
        return f"BlockMask({sizes})"
    drawn = "\n".join(line.rstrip() for line in mask.to_string().splitlines())
    return f"BlockMask({sizes}, sparsity={mask.sparsity():.2f}%,\n{drawn}\n)"
