"""The backward of attention.tiled: weights recomputed from the lse, tile by tile.

Source: FlashAttention-2 (arXiv 2307.08691), algorithm 2, with FlexAttention's score_mod (arXiv
2412.05496) differentiated by torch.autograd on each tile. Sums run in one fixed order, but for the
gradient of a captured tensor that is indexed: torch adds that up with atomics unless
torch.use_deterministic_algorithms is on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionGradients
from torchyard_attention.implementations._tile_math import (
    Drops,
    Modification,
    by_rows,
    compute_dtype,
    exponentials,
    finite,
    grouped,
    heads_of,
    product,
    rows_of,
    select,
    visible_pairs,
)
from torchyard_attention.implementations._tiles import Chunk, Piece, Tile, tiles


def tiled_backward(
    call: AttentionCall, out: Tensor, lse: Tensor, grad_out: Tensor, grad_lse: Tensor | None
) -> AttentionGradients:
    """Compute ``attention_backward/1`` in memory that grows with Sq + Sk."""
    gradients = _Backward(call, out, lse, grad_out, grad_lse, exact=False).run()
    hides = call.mask is not None or call.score_mod is not None
    found = (gradients.query, gradients.key, gradients.value, *gradients.captured)
    if hides and not finite(*(gradient for gradient in found if gradient is not None)):
        return _Backward(call, out, lse, grad_out, grad_lse, exact=True).run()
    return gradients


class _Backward:
    def __init__(
        self,
        call: AttentionCall,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
        grad_lse: Tensor | None,
        *,
        exact: bool,
    ) -> None:
        self._call, self._exact = call, exact
        self._dtype = dtype = compute_dtype(call)
        kv_heads = call.key.shape[1]
        with torch.no_grad():
            self._query = grouped((call.query.to(dtype) * call.scale).contiguous(), kv_heads)
            self._key = call.key.to(dtype).contiguous()
            self._value = call.value.to(dtype).contiguous()
            wide = grad_out.to(dtype).contiguous()
            self._grad_out = grouped(wide, kv_heads)
            # d lse / d score is the weight, as in the term that subtracts delta.
            delta = (wide * out.to(dtype)).sum(dim=-1)
            if grad_lse is not None:
                delta -= grad_lse
            empty = lse == -torch.inf
            delta.masked_fill_(empty, 0.0)
            shift = lse.to(dtype).masked_fill(empty, torch.inf)
        self._delta = grouped(delta.neg_().unsqueeze(-1), kv_heads)
        self._shift = grouped(shift.unsqueeze(-1), kv_heads)
        self._grad_query = torch.zeros_like(self._query)
        self._grad_key, self._grad_value = (
            torch.zeros_like(tensor) for tensor in (self._key, self._value)
        )
        self._drops = None if call.dropout is None else Drops(call, dtype)
        self._leaves = _leaves(call, dtype)
        self._wanted = [leaf for leaf in self._leaves if leaf.requires_grad]
        self._grad_captured = [torch.zeros_like(leaf) for leaf in self._wanted]
        self._modify = None if call.score_mod is None else Modification(call, self._leaves)

    def run(self) -> AttentionGradients:
        with torch.no_grad():
            for tile in tiles(self._call, self._dtype):
                for chunk in tile.chunks:
                    self._differentiate(tile, chunk)
            grad_query = self._grad_query.mul_(self._call.scale)
        sums = iter(self._grad_captured)
        captured = () if self._call.score_mod is None else self._call.score_mod.captured
        return AttentionGradients(
            grad_query.flatten(1, 2).to(self._call.query.dtype),
            self._grad_key.to(self._call.key.dtype),
            self._grad_value.to(self._call.value.dtype),
            tuple(
                next(sums).to(tensor.dtype) if leaf.requires_grad else None
                for tensor, leaf in zip(captured, self._leaves, strict=True)
            ),
        )

    def _differentiate(self, tile: Tile, chunk: Chunk) -> None:
        query = rows_of(self._query, chunk, tile.rows)
        grad_out = rows_of(self._grad_out, chunk, tile.rows)
        delta = rows_of(self._delta, chunk, tile.rows)
        shift = rows_of(self._shift, chunk, tile.rows)
        key, value = heads_of(self._key, chunk), heads_of(self._value, chunk)
        grad_query: Tensor | None = None
        for piece in tile.pieces:
            keys = piece.take(key)
            raw = torch.bmm(query, keys.mT)
            if self._exact:
                raw = select(raw, piece.bias, 0.0)
            modified, leaf = raw, None
            if self._modify is not None:
                with torch.enable_grad():
                    leaf = raw.detach().requires_grad_()
                    modified = self._modify(leaf, chunk, tile.rows, piece)
            weights = self._weights(modified.detach(), shift, piece, owned=leaf is None)
            seen = visible_pairs(piece.bias, self._exact, weights)
            across = None if seen is None else seen.mT
            kept, factors = weights, None
            if self._drops is not None:
                factors = self._drops.factors(chunk, tile.rows, piece, weights.shape)
                kept = weights * factors
            piece.add_to(
                heads_of(self._grad_value, chunk),
                product(kept.mT, grad_out, across, self._exact),
            )
            if factors is None:
                slope = torch.baddbmm(delta, grad_out, piece.take(value).mT)
            else:
                slope = torch.bmm(grad_out, piece.take(value).mT).mul_(factors).add_(delta)
            if self._exact:
                slope = select(slope, piece.bias, 0.0)
            slope = slope.mul_(weights)
            if leaf is not None:
                found = self._through(modified, leaf, slope)
                if found is None:
                    continue
                slope = select(found, piece.bias, 0.0) if self._exact else found
            piece.add_to(
                heads_of(self._grad_key, chunk), product(slope.mT, query, across, self._exact)
            )
            more = product(slope, keys, seen, self._exact)
            grad_query = more if grad_query is None else grad_query.add_(more)
        if grad_query is not None:
            rows = self._grad_query[chunk.batches, chunk.heads, chunk.group, tile.rows]
            rows.copy_(grad_query.view(rows.shape))

    def _weights(self, scores: Tensor, shift: Tensor, piece: Piece, *, owned: bool) -> Tensor:
        """Return exp(scores - lse), 0 at hidden pairs."""
        if self._exact:
            hidden = select(scores, piece.bias, -torch.inf)
            # A row whose lse is NaN has no weight at its hidden pairs either.
            return select(exponentials(hidden, shift, None, True), piece.bias, 0.0)
        if piece.bias is not None:
            biased = by_rows(scores, piece.bias)
            scores = (biased.add_(piece.bias) if owned else biased + piece.bias).view(scores.shape)
            owned = True
        return exponentials(scores, shift, scores if owned else None, False)

    def _through(self, modified: Tensor, leaf: Tensor, slope: Tensor) -> Tensor | None:
        """Return the slope of the raw scores; add up the captured tensors' gradients.

        None where the modified scores do not depend on the raw ones.
        """
        if not modified.requires_grad:
            return None
        found, *captured = torch.autograd.grad(
            modified, [leaf, *self._wanted], slope, allow_unused=True
        )
        for total, more in zip(self._grad_captured, captured, strict=True):
            if more is not None:
                total += more
        return found


def _leaves(call: AttentionCall, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the captured tensors; as leaves, wide enough to add up many tiles' gradients, where
    those are wanted."""
    captured = () if call.score_mod is None else call.score_mod.captured
    flags = call.captured_grad or (False,) * len(captured)
    return tuple(
        tensor.detach().to(torch.promote_types(tensor.dtype, dtype)).requires_grad_(wanted)
        if tensor.is_floating_point()
        else tensor
        for tensor, wanted in zip(captured, flags, strict=True)
    )
