"""The forward of attention.tiled: online softmax over tiles of the score matrix.

Source: FlashAttention-2 (arXiv 2307.08691), algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall, AttentionResult
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
from torchyard_attention.implementations._tiles import Chunk, Tile, tiles


@torch.no_grad()
def tiled_forward(call: AttentionCall) -> AttentionResult:
    """Compute ``attention/1`` in memory that grows with Sq + Sk, never with their product."""
    result = _Forward(call, exact=False).run()
    hides = call.mask is not None or call.score_mod is not None
    if hides and not finite(result.out):
        return _Forward(call, exact=True).run()
    return result


class _Forward:
    def __init__(self, call: AttentionCall, *, exact: bool) -> None:
        self._call, self._exact = call, exact
        self._dtype = compute_dtype(call)
        batch, q_heads, q_length, _ = call.query.shape
        kv_heads = call.key.shape[1]
        self._query = grouped((call.query.to(self._dtype) * call.scale).contiguous(), kv_heads)
        self._key = call.key.to(self._dtype).contiguous()
        self._value = call.value.to(self._dtype).contiguous()
        self._modify = None if call.score_mod is None else Modification(call, ())
        self._drops = None if call.dropout is None else Drops(call, self._dtype)
        rows = (batch, q_heads, q_length)
        self.out = call.query.new_empty((*rows, call.value.shape[3]))
        self.lse = call.query.new_empty(rows, dtype=self._dtype)
        self.max_scores = torch.empty_like(self.lse) if call.max_scores else None

    def run(self) -> AttentionResult:
        for tile in tiles(self._call, self._dtype):
            for chunk in tile.chunks:
                self._attend(tile, chunk)
        return AttentionResult(self.out, self.lse if self._call.lse else None, self.max_scores)

    def _attend(self, tile: Tile, chunk: Chunk) -> None:
        query = rows_of(self._query, chunk, tile.rows)
        key, value = heads_of(self._key, chunk), heads_of(self._value, chunk)
        high: Tensor | None = None
        total: Tensor | None = None
        mixed: Tensor | None = None
        for piece in tile.pieces:
            scores = torch.bmm(query, piece.take(key).mT)
            if self._exact:
                scores = select(scores, piece.bias, 0.0)
            if self._modify is not None:
                scores = self._modify.fresh(scores, chunk, tile.rows, piece)
            if self._exact:
                scores = select(scores, piece.bias, -torch.inf)
            elif piece.bias is not None:
                by_rows(scores, piece.bias).add_(piece.bias)
            above = scores.amax(dim=-1, keepdim=True)
            if high is not None:
                above = torch.maximum(high, above)
            shift = above.masked_fill(above == -torch.inf, 0.0)
            weights = exponentials(scores, shift, scores, self._exact)
            part = weights.sum(dim=-1, keepdim=True)
            if self._drops is not None:
                weights = weights * self._drops.factors(chunk, tile.rows, piece, weights.shape)
            seen = visible_pairs(piece.bias, self._exact, weights)
            more = product(weights, piece.take(value), seen, self._exact)
            if high is not None and total is not None and mixed is not None:
                fade = torch.exp(high - shift)
                total, mixed = total.mul_(fade).add_(part), mixed.mul_(fade).add_(more)
            else:
                total, mixed = part, more
            high = above
        self._store(tile, chunk, high, total, mixed)

    def _store(
        self,
        tile: Tile,
        chunk: Chunk,
        high: Tensor | None,
        total: Tensor | None,
        mixed: Tensor | None,
    ) -> None:
        place = (chunk.batches, chunk.heads, chunk.group, tile.rows)
        kv_heads = self._key.shape[1]
        outputs = [(self.lse, high), (self.max_scores, high)]
        if high is None or total is None or mixed is None:
            grouped(self.out, kv_heads)[place] = 0.0
        else:
            # A row that sees nothing has total 0 and must not become NaN.
            total = total.masked_fill_(total == 0, 1.0)
            out = grouped(self.out, kv_heads)[place]
            out.copy_(mixed.div_(total).view(out.shape))
            outputs = [(self.lse, total.log_().add_(high)), (self.max_scores, high)]
        for target, values in outputs:
            if target is None:
                continue
            rows = grouped(target, kv_heads)[place]
            rows.copy_(rows.new_full((), -torch.inf) if values is None else values.view(rows.shape))
