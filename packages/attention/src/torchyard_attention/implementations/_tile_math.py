"""Scores, weights and products of tiles, for the forward and the backward.

Each step exists twice. The plain one adds -inf to hidden scores, which costs a twentieth of
selecting (torch.where, masked_fill) on a CPU, but lets what is not finite slip from a hidden pair
into a sum, where it shows in the result. The exact one keeps hidden pairs out by selection and is
run where the result of the plain one was not finite.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard_attention.contract import AttentionCall
from torchyard_attention.dropout import dropout_factors
from torchyard_attention.implementations._tiles import Chunk, Piece

_LOG2_E: Final = 1.4426950408889634


def compute_dtype(call: AttentionCall) -> torch.dtype:
    """Return the dtype of scores and sums."""
    return torch.float64 if call.query.dtype == torch.float64 else torch.float32


def grouped(tensor: Tensor, kv_heads: int) -> Tensor:
    """View [B, Hq, ...] as [B, Hkv, G, ...]."""
    batch, heads, *rest = tensor.shape
    return tensor.view(batch, kv_heads, heads // kv_heads, *rest)


def rows_of(tensor: Tensor, chunk: Chunk, rows: slice) -> Tensor:
    """Return a tile's rows of [B, Hkv, G, Sq, X] as [N, G' * rows, X]."""
    part = tensor[chunk.batches, chunk.heads, chunk.group, rows]
    batch, heads, group, count, width = part.shape
    return part.reshape(batch * heads, group * count, width)


def heads_of(tensor: Tensor, chunk: Chunk) -> Tensor:
    """View a chunk of contiguous [B, Hkv, Sk, X] as [N, Sk, X]."""
    part = tensor[chunk.batches, chunk.heads]
    return part.view(part.shape[0] * part.shape[1], *part.shape[2:])


class Modification:
    """A call's score_mod, applied tile by tile.

    Args:
        call: the call; its score_mod is not None.
        captured: used in place of the score_mod's own captured tensors; empty takes those.
    """

    def __init__(self, call: AttentionCall, captured: tuple[Tensor, ...]) -> None:
        assert call.score_mod is not None
        self._mod = call.score_mod
        self._captured = captured
        self._own = {tensor.untyped_storage().data_ptr() for tensor in call.score_mod.captured}
        device = call.query.device
        batch, q_heads, q_length, _ = call.query.shape
        self._b = torch.arange(batch, device=device)
        self._h = torch.arange(q_heads, device=device).view(call.key.shape[1], -1)
        self._q = torch.arange(q_length, device=device)

    def __call__(self, raw: Tensor, chunk: Chunk, rows: slice, piece: Piece) -> Tensor:
        """Return the modified scores of raw [N, G' * rows, n], in its shape and dtype."""
        b, h = self._b[chunk.batches], self._h[chunk.heads, chunk.group].reshape(-1)
        q, k = self._q[rows], piece.keys
        tile = raw.view(b.numel(), h.numel(), q.numel(), k.numel())
        return self._mod.apply(tile, b, h, q, k, *self._captured).to(raw.dtype).reshape(raw.shape)

    def fresh(self, raw: Tensor, chunk: Chunk, rows: slice, piece: Piece) -> Tensor:
        """Return the modified scores in memory that may be overwritten."""
        modified = self(raw, chunk, rows, piece)
        shared = modified.untyped_storage().data_ptr() in self._own
        return modified.clone() if shared or not modified.is_contiguous() else modified


class Drops:
    """A call's dropout, tile by tile.

    Args:
        call: the call; its dropout is not None.
        dtype: of the factors.
    """

    def __init__(self, call: AttentionCall, dtype: torch.dtype) -> None:
        assert call.dropout is not None
        self._dropout, self._dtype = call.dropout, dtype
        device = call.query.device
        batch, self._q_heads, q_length, _ = call.query.shape
        self._b = torch.arange(batch, device=device)
        self._h = torch.arange(self._q_heads, device=device).view(call.key.shape[1], -1)
        self._q = torch.arange(q_length, device=device)

    def factors(self, chunk: Chunk, rows: slice, piece: Piece, shape: torch.Size) -> Tensor:
        """Return what weights [N, G' * rows, n] are multiplied by, in this shape."""
        places = (
            self._b[chunk.batches],
            self._h[chunk.heads, chunk.group].reshape(-1),
            self._q[rows],
            piece.keys,
        )
        return dropout_factors(self._dropout, places, self._q_heads, self._dtype).reshape(shape)


def select(tensor: Tensor, bias: Tensor | None, otherwise: float) -> Tensor:
    """Return [N, G' * rows, n] with hidden pairs replaced, whatever they hold."""
    if bias is None:
        return tensor
    return torch.where(bias == 0, by_rows(tensor, bias), otherwise).view(tensor.shape)


def by_rows(tensor: Tensor, bias: Tensor) -> Tensor:
    """View [N, G' * rows, n] so that a bias [rows, n] broadcasts to it."""
    return tensor.view(tensor.shape[0], tensor.shape[1] // bias.shape[0], *bias.shape)


def exponentials(scores: Tensor, shift: Tensor, out: Tensor | None, exact: bool) -> Tensor:
    """Return exp(scores - shift), written to ``out`` where given.

    The plain way takes powers of two, a quarter of the cost of exp, and overflows to NaN where a
    score is beyond 2.3e38.
    """
    if exact:
        return torch.sub(scores, shift, out=out).exp_()
    return torch.add(shift * -_LOG2_E, scores, alpha=_LOG2_E, out=out).exp2_()


def product(weights: Tensor, operand: Tensor, visible: Tensor | None, exact: bool) -> Tensor:
    """Return weights [N, X, Y] @ operand [N, Y, Z], in which hidden pairs take no part.

    Args:
        weights: 0 at hidden pairs.
        operand: may hold what is not finite.
        visible: bool, broadcasts to weights; None: everything.
        exact: whether hidden elements of the operand are kept out although 0 * inf is NaN.
    """
    if not exact or visible is None:
        return torch.bmm(weights, operand)

    def meets(where: Tensor, what: Tensor) -> Tensor:
        return torch.bmm((where & visible).to(weights.dtype), what.to(weights.dtype)) > 0

    finite = operand.isfinite()
    high, low, wrong = operand == torch.inf, operand == -torch.inf, operand.isnan()
    up = meets(weights > 0, high) | meets(weights < 0, low)
    down = meets(weights > 0, low) | meets(weights < 0, high)
    undefined = meets(weights == weights, wrong) | meets(weights == 0, high | low)
    result = torch.bmm(weights, operand.where(finite, 0.0))
    result = torch.where(up, result + torch.inf, result)
    result = torch.where(down, result - torch.inf, result)
    return result.masked_fill_(undefined, torch.nan)


def visible_pairs(bias: Tensor | None, exact: bool, like: Tensor) -> Tensor | None:
    """Return bool as ``like`` [N, G' * rows, n] where something is hidden and it matters."""
    if bias is None or not exact:
        return None
    return (bias == 0).expand_as(by_rows(like, bias)).reshape(like.shape)


def finite(*tensors: Tensor) -> bool:
    """Return whether all sums are finite: false for anything that is not finite.

    A sum that overflows says false too, which costs time and nothing else.
    """
    return all(
        bool(tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)).isfinite())
        for tensor in tensors
    )
