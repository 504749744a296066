"""By which kernel rows are selected from, by architecture; frozen in ``ways.json`` with reasons."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from torchyard_triton.architectures import names_of

__all__ = ["Ways", "ways_of"]


@dataclass(frozen=True, slots=True)
class Ways:
    """Up to which sizes other kernels than ``topk_select`` are taken; 0: they are not.

    Attributes:
        network: elements of a row that ``topk_bitonic`` orders, at most 16384.
        network_k: how many it selects at most.
        network_warp: elements for each of its warps.
        counted: elements of a part that ``topk_count`` holds, at most 32768; of 8 bytes half of it.
        counted_warp: elements for each of its warps.
    """

    network: int = 0
    network_k: int = 0
    network_warp: int = 256
    counted: int = 0
    counted_warp: int = 1024


@cache
def ways_of(architecture: str) -> Ways:
    """Return an architecture's ways; histograms alone where it has none of its own.

    Args:
        architecture: as ``torchyard_triton.architectures`` names it.
    """
    text = files("torchyard_triton.topk").joinpath("ways.json").read_text(encoding="utf-8")
    rows: dict[str, dict[str, Any]] = json.loads(text)["architectures"]
    return next((Ways(**rows[name]) for name in names_of(architecture) if name in rows), Ways())
