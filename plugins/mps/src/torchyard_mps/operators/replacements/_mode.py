"""mode, by sorting."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["mode"]


def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the most frequent element of each row, of several the smallest, and its last place.

    Args:
        self: of any shape and any real dtype. No NaN equals another.
        dim: what is a row.
        keepdim: whether that dimension stays, of size 1.

    Returns:
        Values, and int64 indices.

    Raises:
        IndexError: a row has no elements.
    """
    rows = self if self.dim() else self.unsqueeze(0)
    if not rows.shape[dim]:
        raise IndexError(f"mode: dim: expected a dimension with elements, got {dim} of size 0")
    ordered, places = rows.movedim(dim, -1).sort(dim=-1, stable=True)
    # Runs of equal elements: where one begins, which it is, and how long it is.
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    run = begins.cumsum(-1) - 1
    length = torch.zeros_like(run).scatter_add_(-1, run, torch.ones_like(run))
    # The first of the longest, since torch's argmax may return any of several.
    number = torch.arange(run.shape[-1], device=run.device)
    longest = length == length.amax(-1, keepdim=True)
    first = torch.where(longest, number, run.shape[-1]).amin(-1, keepdim=True)
    last = torch.where(run == first, number, -1).amax(-1, keepdim=True)
    found = [part.gather(-1, last).movedim(-1, dim) for part in (ordered, places)]
    if not self.dim() or not keepdim:
        found = [part.squeeze(dim) for part in found]
    return found[0], found[1]
