"""By which kernel rows are selected from, by architecture; frozen in ``ways.json`` with reasons."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from torchyard_triton._frozen_tables import frozen_table
from torchyard_triton.architectures import names_of

__all__ = ["Ways", "ways_of"]


@dataclass(frozen=True, slots=True)
class Ways:
    """Up to which sizes other kernels than ``topk_select`` are taken; 0: they are not.

    Attributes:
        network: elements of a row that ``topk_bitonic`` orders.
        network_few: likewise where rows are few, so that the launch of a sort takes longer than
            the network's instructions; at most 16384.
        network_k: how many it selects at most.
        network_warp: elements for each of its warps.
        part: elements of the parts that a long row is cut into for ``topk_count``.
        counted: elements that it holds at most, and of a part where ``part`` is too short for k; at
            most 32768. Of 8 bytes half of either.
        counted_warp: elements for each of its warps.
    """

    network: int = 0
    network_few: int = 0
    network_k: int = 0
    network_warp: int = 256
    part: int = 0
    counted: int = 0
    counted_warp: int = 1024


@cache
def ways_of(architecture: str) -> Ways:
    """Return an architecture's ways; histograms alone where it has none of its own.

    Args:
        architecture: as ``torchyard_triton.architectures`` names it.
    """
    rows: dict[str, dict[str, Any]] = frozen_table("topk/ways.json")["architectures"]
    return next((Ways(**rows[name]) for name in names_of(architecture) if name in rows), Ways())
