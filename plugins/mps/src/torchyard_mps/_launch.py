"""``Launch``: a kernel with all that it is launched with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from torch import Tensor

__all__ = ["PREAMBLE", "THREADS", "Launch", "groups_for", "metal_text", "or_one"]

# What sources begin with. Fast mathematics assumes NaN and infinities away, which kernels compute.
PREAMBLE: Final = (
    "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n"
    "#pragma METAL fp math_mode(safe)\nusing namespace metal;\n"
)
# Threads of a threadgroup, for kernels without a reason for another number.
THREADS: Final = 256
# More threadgroups than fill a device; each then computes several elements.
_MOST_GROUPS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel with all that it is launched with.

    Attributes:
        source: Metal.
        kernel: the kernel's name.
        groups: threadgroups, by dimension; 0 where there is nothing to compute.
        threads: threads of a threadgroup.
        buffers: by index.
        outputs: indices of the buffers that the kernel fills; it reads none of them.
        updated: indices of the buffers that it reads and writes.
    """

    source: str
    kernel: str
    groups: tuple[int, int]
    threads: int
    buffers: tuple[Tensor, ...]
    outputs: tuple[int, ...]
    updated: tuple[int, ...] = ()


def groups_for(threads: int) -> int:
    """Return the threadgroups that so many threads need, or as many as fill a device."""
    return min(_MOST_GROUPS, -(-threads // THREADS))


def or_one(tensor: Tensor) -> Tensor:
    """Return a tensor, or one element where it has none: a buffer has memory."""
    return tensor if tensor.numel() else tensor.new_zeros(1)


@cache
def metal_text(*names: str) -> str:
    """Return the text of files in ``metal``, one after the other.

    Args:
        names: paths without ``.metal``; each uses what is before it.
    """
    folder = resources.files("torchyard_mps").joinpath("metal")
    parts = [folder.joinpath(f"{name}.metal").read_text(encoding="utf-8") for name in names]
    return "\n".join(parts)
