"""Attention under torch.vmap: the mapped dimension becomes part of the batch.

Query, key and value are folded into their batch dimension, and so is a score_mod: where it reads
the batch or a tensor that is mapped over, its program is recorded again with the index in the
batch split. Programs whose captured tensors are not merely indexed, and dropout, whose mask depends
on the place in the batch, are computed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchyard_attention._errors import TransformError
from torchyard_attention._mods._evaluate import TracedMod, scalar_function
from torchyard_attention._mods._trace import SCORE_INPUTS, lse_dtype, trace
from torchyard_attention._ops._transforms._plan import Plan, captured_of, with_current_mask
from torchyard_attention._torch_compat import is_mapped
from torchyard_attention.contract import AttentionCall, MaskBlocks

__all__ = ["Batch", "one_by_one", "refuse_mapped_mask"]


class Batch:
    """A call whose tensors have one more dimension, which vmap maps over.

    Args:
        plan: the call's.
        size: how many calls there are.
        given: the tensors, in the plan's order.
        dims: where each has the mapped dimension, or None.
    """

    def __init__(
        self, plan: Plan, size: int, given: Sequence[Tensor], dims: Sequence[int | None]
    ) -> None:
        self._plan, self._size = plan, size
        self._given, self._dims = given, dims

    @property
    def folds(self) -> bool:
        """Whether the calls can be computed as one."""
        call = self._plan.call(self._given)
        if call.dropout is not None:
            return False
        if call.score_mod is None:
            return True
        captured = [
            tensor if dim is None else _one_of(tensor, dim)
            for tensor, dim in zip(call.score_mod.captured, self._dims[3:], strict=False)
        ]
        mod = TracedMod(call.score_mod.text, tuple(captured))
        return mod.pointwise(lse_dtype(call.query))

    def folded(self) -> AttentionCall:
        """Return the one call.

        A captured tensor whose gradient is wanted is copied for each of the calls, since each of
        them has a gradient of its own.
        """
        call = self._plan.call(self._given)
        inner = self._logical(0).shape[0]
        query, key, value = (self.fold(self._given[i], self._dims[i]) for i in range(3))
        captured = list(captured_of(call))
        stacked = [False] * len(captured)
        for place in range(len(captured)):
            dim = self._dims[3 + place]
            if dim is not None:
                captured[place] = captured[place].movedim(dim, 0)
            elif call.captured_grad and call.captured_grad[place]:
                captured[place] = captured[place].expand(self._size, *captured[place].shape)
            else:
                continue
            stacked[place] = True
        score = call.score_mod
        if score is not None:
            text, captured = _placed(score.text, captured, stacked, inner, query)
            score = TracedMod(text, tuple(captured))
        return replace(
            call,
            query=query,
            key=key,
            value=value,
            score_mod=score,
            mask=self._mask(call, inner),
        )

    def fold(self, tensor: Tensor, dim: int | None) -> Tensor:
        """Return [B, ...] with a mapped dimension somewhere, or without, as [N * B, ...]."""
        whole = tensor.expand(self._size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        return whole.flatten(0, 1)

    def unfold(self, tensor: Tensor) -> Tensor:
        """Return [N * B, ...] as [N, B, ...]."""
        inner = self._logical(0).shape[0]
        return tensor.reshape(self._size, inner, *tensor.shape[1:])

    def _logical(self, place: int) -> Tensor:
        dim = self._dims[place]
        return self._given[place] if dim is None else _one_of(self._given[place], dim)

    def _mask(self, call: AttentionCall, inner: int) -> MaskBlocks | None:
        """Return the mask for the larger batch, its bits up to date."""
        if call.mask is None:
            return None
        logical = replace(call, query=self._logical(0), key=self._logical(1))
        mask = with_current_mask(logical).mask
        assert mask is not None
        if mask.kv_num_blocks.shape[0] == 1:
            return mask
        *lists, bits, first = mask.tensors
        repeated = [part.repeat(self._size, *(1,) * (part.ndim - 1)) for part in (*lists, first)]
        parts = (*repeated[:4], bits, repeated[4])
        return MaskBlocks(mask.block_size, *parts, causal=mask.causal)


def _one_of(tensor: Tensor, dim: int) -> Tensor:
    """Return a tensor as one of the calls has it; without values where there is no call."""
    whole = tensor.movedim(dim, 0)
    return whole[0] if whole.shape[0] else whole.new_empty(whole.shape[1:])


def refuse_mapped_mask(call: AttentionCall) -> None:
    """Raise TransformError for a block mask that differs between the calls that vmap maps over."""
    mask = call.mask
    if mask is None:
        return
    captured = () if mask.source is None else mask.source.captured
    if any(is_mapped(tensor) for tensor in (*mask.tensors, *captured)):
        raise TransformError(
            "flex_attention under torch.vmap: expected a block_mask that is the same for all, got "
            "one that is mapped over, whose number of blocks may differ; make it outside of vmap, "
            "with a batch dimension where it differs, and pass the whole batch without vmap"
        )


class _Stacked:
    """One of several stacked tensors, which a program indexes as it would the one."""

    def __init__(self, whole: Tensor, place: Any) -> None:
        self._whole, self._place = whole, place

    def __getitem__(self, index: Any) -> Any:
        rest = index if isinstance(index, tuple) else (index,)
        return self._whole[(self._place, *rest)]


def _placed(
    text: str, captured: list[Tensor], stacked: Sequence[bool], inner: int, query: Tensor
) -> tuple[str, list[Tensor]]:
    """Return a pointwise program for a batch of several calls' batches, and what it captures."""
    function = scalar_function(text)

    def placed(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        call = b // inner
        used: list[Any] = [
            (tensor[call] if tensor.ndim == 1 else _Stacked(tensor, call)) if flag else tensor
            for tensor, flag in zip(captured, stacked, strict=True)
        ]
        return function(score, b % inner, h, q_idx, kv_idx, *used)

    found, order = trace(placed, "score_mod", SCORE_INPUTS, lse_dtype(query), query.device)
    # The tensors keep their places, whatever the order in which the new program uses them.
    place_of = {id(tensor): place for place, tensor in enumerate(captured)}
    places = [place_of[id(tensor)] for tensor in order]
    return re.sub(r'"\$(\d+)"', lambda met: f'"${places[int(met[1])]}"', found), captured


def one_by_one(
    function: Callable[..., tuple[Tensor, ...]],
    size: int,
    given: Sequence[Any],
    dims: Sequence[int | None],
) -> tuple[Tensor, ...]:
    """Return the stacked results of a function of some arguments, called for each place in turn."""
    parts = []
    for place in range(size):
        some = [
            item if dim is None else item.select(dim, place)
            for item, dim in zip(given, dims, strict=True)
        ]
        parts.append(function(*some))
    return tuple(torch.stack(stack) for stack in zip(*parts, strict=True))
