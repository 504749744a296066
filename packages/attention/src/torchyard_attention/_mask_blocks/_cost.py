"""Limits of the work and memory that a mask may take, checked before it is made."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Final

import torch

__all__ = ["MOST_PAIRS", "check_memory", "check_pairs"]

# A core evaluates about a billion pairs of a plain mask_mod per second: four minutes.
MOST_PAIRS: Final = 1 << 38


def check_pairs(sizes: tuple[int, int, int, int]) -> None:
    """Raise ValueError if a mask_mod would be evaluated on too many pairs.

    Args:
        sizes: (Bm, Hm, Sq, Sk), the lengths in whole blocks.
    """
    batch, heads, q_length, kv_length = sizes
    pairs = batch * heads * q_length * kv_length
    if pairs > MOST_PAIRS:
        raise ValueError(
            f"Q_LEN, KV_LEN: expected at most 2**38 pairs where a mask_mod is evaluated on each, "
            f"got {_spelled(sizes)}, about 2**{pairs.bit_length() - 1}, which would take "
            f"{pairs / 1e9 / 3600:.1f} hours; use a mask that knows its structure, from "
            f"torchyard_attention.masks, outside of torch.compile"
        )


def check_memory(
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    needed: int,
    device: torch.device,
) -> None:
    """Raise ValueError if a mask takes more memory than the machine has.

    Args:
        sizes: (Bm, Hm, Sq, Sk).
        block_size: (BQ, BK).
        needed: bytes.
        device: of the mask; memory is known for the CPU alone.
    """
    present = _physical_memory()
    if device.type == "cpu" and present is not None and needed > present:
        raise ValueError(
            f"Q_LEN, KV_LEN: a mask of {_spelled(sizes)} in blocks of {block_size[0]} x "
            f"{block_size[1]} takes {needed / 2**30:,.0f} GiB, and the machine has "
            f"{present / 2**30:,.0f} GiB; use shorter sequences or a larger BLOCK_SIZE"
        )


def _spelled(sizes: tuple[int, int, int, int]) -> str:
    batch, heads, q_length, kv_length = sizes
    of = "" if batch * heads == 1 else f" for {batch * heads} batches and heads"
    return f"{q_length} x {kv_length}{of}"


@lru_cache(maxsize=1)
def _physical_memory() -> int | None:
    """Return the machine's memory in bytes; None where the system does not report it."""
    if sys.platform == "win32":
        return None
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
