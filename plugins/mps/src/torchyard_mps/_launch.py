"""``Launch``: a kernel with all that it is launched with."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Launch"]


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
