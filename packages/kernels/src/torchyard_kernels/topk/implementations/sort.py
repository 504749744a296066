"""kernels.topk: by stable sorts of torch, on any device that has them."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_kernels.topk._absent import absent
from torchyard_kernels.topk.contract import Order, TopKCall, TopKResult

__all__ = ["portable_topk"]


def portable_topk(call: TopKCall) -> TopKResult:
    """Select by sorting: torch's own topk leaves the order of equal elements open."""
    if call.offsets is None:
        order, counts = _rows(call.x, call.largest, call.mask)
        indices = order[..., : call.k]
    else:
        indices, counts = _segments(call.x, call.offsets, call.k, call.largest)
    if counts is not None:
        place = torch.arange(call.k, device=call.x.device)
        indices = torch.where(place < counts.unsqueeze(-1), indices, -1)
    if call.order is Order.LAST:
        indices = indices[..., -1:]
    elif call.order is Order.INDEX:
        indices = _by_index(indices, call.x.shape[-1])
    rows = call.x if call.offsets is None else call.x.expand(*indices.shape[:-1], -1)
    if counts is None:
        return TopKResult(rows.gather(-1, indices), indices.contiguous())
    values = rows.new_full(indices.shape, absent(call.x.dtype, call.largest))
    if call.x.numel():
        found = rows.gather(-1, indices.clamp(min=0))
        values = torch.where(indices < 0, values, found)
    return TopKResult(values, indices.contiguous())


def _rows(x: Tensor, largest: bool, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the indices of whole rows in order, and how many of each are to be seen."""
    order = torch.sort(x, dim=-1, descending=largest, stable=True).indices
    if mask is None:
        return order, None
    hidden = mask.logical_not().gather(-1, order)
    order = order.gather(-1, torch.sort(hidden, dim=-1, stable=True).indices)
    return order, mask.sum(-1)


def _segments(x: Tensor, offsets: Tensor, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the positions of the first k of each segment, and how many it has."""
    starts, counts = offsets[:-1], offsets.diff()
    if not x.numel() or not starts.numel():
        return torch.zeros((starts.numel(), k), dtype=torch.int64, device=x.device), counts
    order = torch.sort(x, descending=largest, stable=True).indices
    segment = torch.searchsorted(offsets, order, right=True)
    order = order.gather(-1, torch.sort(segment, stable=True).indices)
    # What comes before the first segment is sorted to the front, so a segment begins at its offset.
    place = starts.unsqueeze(-1) + torch.arange(k, device=x.device)
    return order[place.clamp(max=x.numel() - 1)], counts


def _by_index(indices: Tensor, length: int) -> Tensor:
    """Return each row's indices rising, those of absent places last."""
    there = torch.where(indices < 0, length, indices)
    rising = torch.sort(there, dim=-1).values
    return torch.where(rising == length, -1, rising)
