"""FlashAttention-4's functions as they are documented and were read, in torch and in float64.

They take what was read of 4.0.0b36: its causal mask is aligned at the last row and key; a mask's
program is called within partial blocks alone; keys behind the end, which are read as zeros, are
kept out of the last block of each list of the forward alone; the backward takes lists by columns of
blocks, and multiplies by the score_mod's derivative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from plugins.cuda.tests.fa4.cute_on_torch import vector
from torchyard_cuda.fa4._adapter import Functions

__all__ = ["DOCUMENTED", "Lists", "backward", "forward"]


class Lists(NamedTuple):
    """flash_attn.cute.block_sparsity.BlockSparseTensorsTorch."""

    mask_block_cnt: Tensor
    mask_block_idx: Tensor
    full_block_cnt: Tensor | None = None
    full_block_idx: Tensor | None = None
    block_size: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Pairs:
    """The scores of [B, S, H, D] and what is called with them."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    tensors: Any

    @property
    def scores(self) -> Tensor:
        return self.query @ self.key.mT * self.scale

    def called(self, function: Any, rows: range, keys: range, b: int, h: int, *own: Any) -> Tensor:
        """Call a function of CuTe DSL with the pairs of some rows and keys, as one vector."""
        q, k = torch.meshgrid(torch.tensor(rows), torch.tensor(keys), indexing="ij")
        places = [torch.full_like(q, b), torch.full_like(q, h), q, k]
        vectors = [vector(place.reshape(-1), torch.int32) for place in places]
        named = {"q_idx": vectors[2], "kv_idx": vectors[3], "seqlen_info": None}
        given = [vector(part.reshape(-1), torch.float32) for part in own]
        found = function(*given, *vectors[:2], **named, aux_tensors=self.tensors)
        return torch.as_tensor(found).as_subclass(Tensor).view(q.shape)

    def modified(self, function: Any, *own: Tensor) -> Tensor:
        """Call a function of scores for every batch and head."""
        if function is None:
            return own[0]
        batches, heads, rows, keys = own[0].shape
        return torch.stack(
            [
                torch.stack(
                    [
                        self.called(
                            *(function, range(rows), range(keys), b, h),
                            *(part[b, h] for part in own),
                        )
                        for h in range(heads)
                    ]
                )
                for b in range(batches)
            ]
        ).double()


def _listed(lists: Lists, b: int, h: int, line: int) -> Iterator[tuple[int, bool, bool]]:
    """Yield a line's blocks, whether each is partial, and whether it is its list's last one."""
    for partial in (True, False):
        counts = lists.mask_block_cnt if partial else lists.full_block_cnt
        indices = lists.mask_block_idx if partial else lists.full_block_idx
        assert counts is not None
        assert indices is not None
        assert indices.shape[3], "CuTe DSL takes no tensor without elements"
        place = (b % counts.shape[0], h % counts.shape[1], line)
        count = int(counts[place])
        for number in range(count):
            yield int(indices[place][number]), partial, number == count - 1


def _visible(
    pairs: _Pairs, mask_mod: Any, lists: Lists | None, kv_length: int, *, by_columns: bool
) -> Tensor:
    """Return which pairs take part, keys behind the end among them."""
    batches, heads, rows, keys = pairs.scores.shape
    seen = torch.zeros((batches, heads, rows, keys), dtype=torch.bool)
    for b, h in torch.cartesian_prod(torch.arange(batches), torch.arange(heads)).tolist():
        if lists is None:
            seen[b, h] = pairs.called(mask_mod, range(rows), range(keys), b, h)
            continue
        assert lists.block_size is not None
        height, width = lists.block_size
        for line in range(lists.mask_block_cnt.shape[2]):
            for other, partial, last in _listed(lists, b, h, line):
                row, column = (other, line) if by_columns else (line, other)
                block = (
                    range(row * height, min((row + 1) * height, rows)),
                    range(column * width, (column + 1) * width),
                )
                inside = torch.ones((len(block[0]), width), dtype=torch.bool)
                if partial:
                    inside = pairs.called(mask_mod, *block, b, h)
                if by_columns or last:
                    inside = inside & (torch.tensor(block[1]) < kv_length)
                seen[b, h, block[0].start : block[0].stop, block[1].start : block[1].stop] = inside
    return seen


def _pairs(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None, lists: Lists | None, tensors: Any
) -> _Pairs:
    assert scale is not None
    group = q.shape[2] // k.shape[2]
    behind = 0
    if lists is not None:
        assert lists.block_size is not None
        behind = -k.shape[1] % lists.block_size[1]
    key, value = (
        torch.nn.functional.pad(
            x.double().transpose(1, 2).repeat_interleave(group, 1), (0, 0, 0, behind)
        )
        for x in (k, v)
    )
    return _Pairs(q.double().transpose(1, 2), key, value, scale, tensors)


def _weights(
    pairs: _Pairs, score_mod: Any, causal: bool, mask: tuple[Any, Lists | None, int, bool]
) -> tuple[Tensor, Tensor]:
    """Return softmax's weights and the log-sum-exp."""
    scores = pairs.modified(score_mod, pairs.scores)
    rows, keys = scores.shape[-2:]
    mask_mod, lists, kv_length, by_columns = mask
    if mask_mod is not None:
        seen = _visible(pairs, mask_mod, lists, kv_length, by_columns=by_columns)
        scores = scores.masked_fill(~seen, -math.inf)
    if causal:
        hidden = torch.arange(keys) > torch.arange(rows)[:, None] + keys - rows
        scores = scores.masked_fill(hidden, -math.inf)
    lse = scores.logsumexp(-1)
    return (scores - lse.masked_fill(lse == -math.inf, 0.0)[..., None]).exp(), lse


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    score_mod: Any = None,
    mask_mod: Any = None,
    block_sparse_tensors: Lists | None = None,
    aux_tensors: Any = None,
    return_lse: bool = False,
) -> tuple[Any, ...]:
    """Compute attention of [B, S, H, D]."""
    lists = block_sparse_tensors
    pairs = _pairs(q, k, v, softmax_scale, lists, aux_tensors)
    weights, lse = _weights(pairs, score_mod, causal, (mask_mod, lists, k.shape[1], False))
    out = (weights @ pairs.value).transpose(1, 2).to(q.dtype)
    return out, lse.float() if return_lse else None, None, None, None


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    dout: Tensor,
    lse: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    deterministic: bool = False,
    score_mod: Any = None,
    score_mod_bwd: Any = None,
    mask_mod: Any = None,
    aux_tensors: Any = None,
    block_sparse_tensors: Lists | None = None,
    dlse: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Compute its gradients, by the equations of FlashAttention-2 (arXiv 2307.08691)."""
    assert out.shape == dout.shape
    lists = block_sparse_tensors
    pairs = _pairs(q, k, v, softmax_scale, lists, aux_tensors)
    weights, found = _weights(pairs, score_mod, causal, (mask_mod, lists, k.shape[1], True))
    torch.testing.assert_close(found.float(), lse, rtol=1e-3, atol=1e-3)
    slope = dout.double().transpose(1, 2)
    delta = (slope * out.double().transpose(1, 2)).sum(-1, keepdim=True)
    if dlse is not None:
        delta = delta - dlse.double()[..., None]
    inner = weights * (slope @ pairs.value.mT - delta)
    if score_mod_bwd is not None:
        inner = pairs.modified(score_mod_bwd, inner, pairs.scores)
    inner = inner * pairs.scale
    of_key, of_value = (
        x[:, :, : k.shape[1]].unflatten(1, (k.shape[2], -1)).sum(2)
        for x in (inner.mT @ pairs.query, weights.mT @ slope)
    )
    found_all = inner @ pairs.key, of_key, of_value
    return tuple(x.transpose(1, 2).to(q.dtype) for x in found_all)


DOCUMENTED = Functions(forward, backward, Lists)
