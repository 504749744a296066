"""``merge_launch``: attention over all keys from attention over parts of them."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_mps._launch import PREAMBLE, THREADS, Launch, groups_for, metal_text
from torchyard_mps.attention._tensors import type_definition

__all__ = ["merge_launch"]

_OUT: Final = 3


def merge_launch(
    parts: tuple[Tensor, Tensor, Tensor], outputs: tuple[Tensor, Tensor, Tensor], *, maxima: bool
) -> Launch:
    """Return the launch that puts parts together, in their order.

    Args:
        parts: out [parts, B, Hq, Sq, V], lse and max_scores [parts, B, Hq, Sq], all float32.
        outputs: the same without parts, which it fills; out of any dtype.
        maxima: whether there are max_scores; otherwise they are never read, and may have any shape.
    """
    count, *rows, columns = parts[0].shape
    size = torch.Size(rows).numel()
    sizes = torch.tensor([count, size, columns], device=parts[0].device)
    defined = f"#define MAXIMA {str(maxima).lower()}"
    lines = [PREAMBLE, type_definition("T", outputs[0].dtype), defined]
    source = "\n".join([*lines, metal_text("attention/merge")])
    groups = (groups_for(size * columns), 1)
    buffers = (*parts, *outputs, sizes)
    indices = tuple(range(_OUT, _OUT + (3 if maxima else 2)))
    return Launch(source, "attention_merge", groups, THREADS, buffers, indices)
