"""``Parts``: how a call's rows and keys are cut, by its sizes alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from torchyard_attention.contract import AttentionCall
from torchyard_mps.attention._tensors import ROWS, row_tiles

__all__ = ["PART", "Parts", "key_length", "parts_of"]

# Keys of a part: fixed, so that a sequence's bits do not depend on its neighbours.
PART: Final = 256
# Queries up to which heads share tiles and keys are cut.
_FEW: Final = 8
_KEYS: Final = 32
# Threads of a simdgroup, and rows that it computes.
_LANES: Final = 32
_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """How a call is cut.

    Attributes:
        fold: heads whose rows are in one tile.
        threads: of a threadgroup; 32 for each 8 rows of a tile.
        tiles: of rows, of each group of folded heads.
        count: parts of keys.
        steps: tiles of keys in a part.
    """

    fold: int
    threads: int
    tiles: int
    count: int
    steps: int


def parts_of(call: AttentionCall, keys: int = PART) -> Parts:
    """Return how a call is cut, which depends on its sizes alone: lengths of pages are not read.

    Args:
        call: the call.
        keys: of a part, a multiple of 32.
    """
    rows = call.query.shape[2]
    few = rows <= _FEW
    mask = call.mask
    # Lists of blocks that differ between heads are followed head by head.
    shared = mask is None or mask.kv_num_blocks.shape[1] == 1
    fold = call.query.shape[1] // max(1, call.key.shape[1]) if few and shared else 1
    block = 0 if mask is None else mask.block_size[0]
    folded = min(rows, block or rows) * fold
    simdgroups = max(1, -(-min(ROWS, folded) // _ROWS))
    tiles = row_tiles(rows * fold, block * fold, simdgroups * _ROWS)
    steps = _most_steps(call)
    part_steps = keys // _KEYS if few else max(1, steps)
    return Parts(
        fold=fold,
        threads=simdgroups * _LANES,
        tiles=tiles,
        count=max(1, -(-steps // part_steps)),
        steps=part_steps,
    )


def key_length(call: AttentionCall) -> int:
    """Return the most keys that a sequence of a call has."""
    length = call.key.shape[2]
    return length if call.pages is None else length * call.pages.table.shape[1]


def _most_steps(call: AttentionCall) -> int:
    """Return how many tiles of keys a row has at most."""
    length = key_length(call)
    if call.mask is None:
        return -(-length // _KEYS)
    mask = call.mask
    blocks = mask.kv_indices.shape[3] + mask.full_kv_indices.shape[3]
    return blocks * -(-min(length, mask.block_size[1]) // _KEYS)
