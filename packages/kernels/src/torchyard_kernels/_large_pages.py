"""Memory in large pages, for weights that are read from one end to the other.

A processor translates the address of each page. With pages of 4 KiB, translation limits the speed
of sequential reads, more so on a virtual machine; in large pages weights are read about a sixth
faster. They are requested with madvise where the system has it; elsewhere nothing is done.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

__all__ = ["LARGE_PAGE", "in_large_pages", "large_empty"]

# Bytes of a large page of x86-64, and of 64-bit Arm with pages of 4 KiB.
LARGE_PAGE: Final = 1 << 21
_LINE: Final = 64
# Linux alone has it.
_ADVICE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


def in_large_pages(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors, as copies one after the other in large pages.

    Returns the tensors themselves where together they are smaller than a page, are on a device or
    of a subclass, or where the system has no such pages.

    Args:
        tensors: contiguous.
    """
    places, size = [], 0
    for tensor in tensors:
        places.append(size)
        size += -(-tensor.nbytes // _LINE) * _LINE
    if size < LARGE_PAGE or any(type(one) is not Tensor or not one.is_cpu for one in tensors):
        return tuple(tensors)
    block = _block(size)
    if block is None:
        return tuple(tensors)
    memory, start = block
    found = []
    for tensor, place in zip(tensors, places, strict=True):
        if tensor.numel() == 0:
            found.append(tensor)
            continue
        flat = torch.frombuffer(
            memory, dtype=tensor.dtype, offset=start + place, count=tensor.numel()
        )
        found.append(flat.view(tensor.shape).copy_(tensor))
    return tuple(found)


def large_empty(like: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return a contiguous tensor of other sizes with any values, in large pages where it can be."""
    count = math.prod(sizes)
    size = count * like.itemsize
    block = None
    if size >= LARGE_PAGE and type(like) is Tensor and like.is_cpu:
        block = _block(size)
    if block is None:
        return like.new_empty(tuple(sizes))
    memory, start = block
    return torch.frombuffer(memory, dtype=like.dtype, offset=start, count=count).view(tuple(sizes))


def _block(size: int) -> tuple[mmap.mmap, int] | None:
    """Return memory, and the offset of ``size`` bytes in it that begin at a large page.

    The last page is a large one only if it is full, so that no memory is wasted.
    """
    if sys.platform == "win32" or _ADVICE is None:
        return None
    try:
        memory = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % LARGE_PAGE
        memory.madvise(_ADVICE, start, size // LARGE_PAGE * LARGE_PAGE)
    except (OSError, ValueError):
        # No memory, or a system that was built without such pages.
        return None
    return memory, start
