"""The tangent of attention's outputs: its derivative along a direction, in closed form.

With weights p = exp(scores - lse) and dots for tangents::

    lse'  = sum_k p * scores'
    out'  = sum_k p * scores' * value + p * value'  -  lse' * out

in torch operations, over some query rows at a time, so that memory grows with Sk and not with
Sq x Sk. Source: the derivative of the equations of ``torchyard_attention.contract``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from torchyard_attention._mods._trace import lse_dtype
from torchyard_attention._ops._transforms._composed import floating
from torchyard_attention._ops._transforms._plan import captured_of, with_current_mask
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.dropout import dropout_factors
from torchyard_attention.visibility import dense_visibility
from torchyard_programs import pushforward

__all__ = ["tangents"]

# Pairs that are held at once: with what becomes of them, some tens of megabytes.
_PAIRS: Final = 1 << 21


def tangents(
    call: AttentionCall, out: Tensor, lse: Tensor, directions: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    """Return the tangents of out and lse.

    Args:
        call: the call.
        out, lse: its outputs.
        directions: tangents of query, key, value and of each tensor that score_mod captures; None
            for zeros.
    """
    call = with_current_mask(call)
    parts = [
        _Rows(call, captured_of(call), rows, visible).tangents(out, lse, directions)
        for rows, visible in _rows(call)
    ]
    if not parts:
        return torch.zeros_like(out), torch.zeros_like(lse)
    of_out, of_lse = (torch.cat([part[index] for part in parts], dim=2) for index in (0, 1))
    return of_out.to(out.dtype), of_lse


def _rows(call: AttentionCall) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield slices of the query rows, each with the pairs that are visible of them."""
    batch, heads, q_length, _ = call.query.shape
    kv_length = call.key.shape[2]
    height = 1 if call.mask is None else call.mask.block_size[0]
    step = max(1, _PAIRS // max(1, batch * heads * kv_length) // height) * height
    for first in range(0, q_length, step):
        last = min(first + step, q_length)
        visible = None
        if call.mask is not None:
            part = _blocks(call.mask, slice(first // height, -(-last // height)))
            visible = dense_visibility(part, last - first, kv_length)
        yield slice(first, last), visible


def _blocks(mask: MaskBlocks, rows: slice) -> MaskBlocks:
    """Return some rows of blocks of a mask."""
    names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
    some = {name: getattr(mask, name)[:, :, rows] for name in (*names, "first_partial")}
    return replace(mask, **some)


class _Rows:
    """Some query rows of a call."""

    def __init__(
        self,
        call: AttentionCall,
        captured: Sequence[Tensor],
        rows: slice,
        visible: Tensor | None,
    ) -> None:
        self._call, self._captured = call, tuple(captured)
        self._slice, self._visible = rows, visible
        self._dtype = lse_dtype(call.query)

    def tangents(
        self, out: Tensor, lse: Tensor, directions: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        call = self._call
        of_query, of_key, of_value, *of_captured = directions
        query, key, value = self._some(call.query), call.key, call.value
        scores = self._times(query, key.mT)
        slope = torch.zeros_like(scores)
        if of_query is not None:
            slope = slope + self._times(self._some(of_query), key.mT)
        if of_key is not None:
            slope = slope + self._times(query, of_key.mT)
        scores, slope = (self._select(part * call.scale, 0.0) for part in (scores, slope))
        if call.score_mod is not None:
            scores, slope = self._modified(scores, slope, of_captured)
        out, lse = self._some(out).to(self._dtype), self._some(lse).unsqueeze(-1)
        # A row that sees no key has an lse of -inf, and no weight.
        weights = torch.exp(scores - lse.masked_fill(lse == -torch.inf, torch.inf))
        weights = self._select(weights, 0.0)
        moved = weights * self._select(slope, 0.0)
        of_lse = moved.sum(dim=-1)
        if call.dropout is not None:
            b, h, q, k = self._places()
            factors = dropout_factors(call.dropout, (b, h, q, k), h.numel(), self._dtype)
            moved, weights = moved * factors, weights * factors
        mixed = self._mixed(moved, value)
        if of_value is not None:
            mixed = mixed + self._mixed(weights, of_value)
        return mixed - of_lse.unsqueeze(-1) * out, of_lse

    def _modified(
        self, scores: Tensor, slope: Tensor, of_captured: Sequence[Tensor | None]
    ) -> tuple[Tensor, Tensor]:
        mod = self._call.score_mod
        assert mod is not None
        b, h, q, k = self._places()
        places = [place for place in floating(self._captured) if of_captured[place] is not None]

        def modify(raw: Tensor, *some: Tensor) -> tuple[Tensor]:
            captured = list(self._captured)
            for place, tensor in zip(places, some, strict=True):
                captured[place] = tensor
            return (mod.apply(raw, b, h, q, k, *captured).to(raw.dtype),)

        primals = (scores, *(self._captured[place] for place in places))
        directions = (
            slope,
            *(part for place in places if (part := of_captured[place]) is not None),
        )
        (modified,), (moved,) = pushforward(modify, primals, directions)
        return modified, moved

    def _places(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query = self._call.query
        b, h, k = (
            torch.arange(size, device=query.device)
            for size in (*query.shape[:2], self._call.key.shape[2])
        )
        return b, h, torch.arange(self._slice.start, self._slice.stop, device=query.device), k

    def _times(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return rows [B, Hq, R, X] @ others [B, Hkv, X, Y] for the key head of each query head."""
        batch, heads, length, width = rows.shape
        kv_heads = others.shape[1]
        wide = rows.to(self._dtype).reshape(batch, kv_heads, heads // kv_heads, length, width)
        found = torch.matmul(wide, others.to(self._dtype).unsqueeze(2))
        return found.reshape(batch, heads, length, others.shape[3])

    def _mixed(self, weights: Tensor, values: Tensor) -> Tensor:
        """Return weights @ values, in which values that are not finite reach those who see them."""
        if self._visible is None:
            return self._times(weights, values)
        odd = ~values.isfinite()
        seen = self._visible.to(self._dtype).expand(weights.shape)
        met = self._times(seen, odd.to(self._dtype)) > 0
        return self._times(weights, values.masked_fill(odd, 0.0)).masked_fill(met, torch.nan)

    def _some(self, tensor: Tensor) -> Tensor:
        # Not by indexing, which autograd's own batches do not take.
        return tensor.narrow(2, self._slice.start, self._slice.stop - self._slice.start)

    def _select(self, pairs: Tensor, otherwise: float) -> Tensor:
        return pairs if self._visible is None else torch.where(self._visible, pairs, otherwise)
