"""Attention under torch.vmap: the mapped dimension becomes part of the batch.

Query, key and value are folded into their batch dimension, and so is a score_mod: where it reads
the batch or a tensor that is mapped over, its program is recorded again with the place in the batch
taken apart. Programs whose captured tensors are not merely indexed, and dropout, whose mask depends
on the place in the batch, are computed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard_attention._errors import TransformError
from torchyard_attention._mods._evaluate import TracedMod, scalar_function
from torchyard_attention._mods._trace import IDENTITY, SCORE_INPUTS, trace
from torchyard_attention._ops._arguments import Arguments
from torchyard_attention._ops._request import lse_dtype
from torchyard_attention._ops._transforms._plan import Plan
from torchyard_attention._torch_compat import is_mapped

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
        arguments = self._plan.arguments(self._given)
        if arguments.dropout_p:
            return False
        if arguments.score_text == IDENTITY:
            return True
        captured = [
            tensor if dim is None else _one_of(tensor, dim)
            for tensor, dim in zip(arguments.score_captured, self._dims[3:], strict=False)
        ]
        mod = TracedMod(arguments.score_text, tuple(captured))
        return mod.pointwise(lse_dtype(arguments.query))

    def folded(self, mapped_gradients: Sequence[bool] = ()) -> Arguments:
        """Return the one call.

        Args:
            mapped_gradients: of each captured tensor, whether a gradient of its own is wanted in
                each of the calls.
        """
        arguments = self._plan.arguments(self._given)
        scores = self._plan.counts[0]
        inner = self._logical(0).shape[0]
        query, key, value = (self.fold(self._given[i], self._dims[i]) for i in range(3))
        captured = list(arguments.score_captured)
        stacked = [False] * scores
        for place in range(scores):
            dim = self._dims[3 + place]
            if dim is not None:
                captured[place] = captured[place].movedim(dim, 0)
            elif mapped_gradients and mapped_gradients[place]:
                captured[place] = captured[place].expand(self._size, *captured[place].shape)
            else:
                continue
            stacked[place] = True
        text = arguments.score_text
        if text != IDENTITY:
            text, captured = _placed(text, captured, stacked, inner, query)
        return replace_mask(
            arguments._replace(
                query=query, key=key, value=value, score_text=text, score_captured=captured
            ),
            self._mask(arguments, inner),
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

    def _mask(self, arguments: Arguments, inner: int) -> list[Tensor]:
        """Return the mask's tensors for the larger batch, its bits up to date."""
        if not arguments.mask:
            return []
        logical = arguments._replace(query=self._logical(0), key=self._logical(1))
        blocks = logical.call(lse=True, max_scores=False).mask
        assert blocks is not None
        found = [
            blocks.kv_num_blocks,
            blocks.kv_indices,
            blocks.full_kv_num_blocks,
            blocks.full_kv_indices,
            blocks.bits,
            blocks.first_partial,
        ]
        if blocks.kv_num_blocks.shape[0] == 1:
            return found
        return [
            tensor if place == 4 else tensor.repeat(self._size, *(1,) * (tensor.ndim - 1))
            for place, tensor in enumerate(found)
        ]


def replace_mask(arguments: Arguments, mask: list[Tensor]) -> Arguments:
    """Return the arguments with a mask whose bits need not be made anew."""
    return arguments._replace(mask=mask, mask_captured=[], mask_text="", mask_versions=[])


def _one_of(tensor: Tensor, dim: int) -> Tensor:
    """Return a tensor as one of the calls has it; without values where there is no call."""
    whole = tensor.movedim(dim, 0)
    return whole[0] if whole.shape[0] else whole.new_empty(whole.shape[1:])


def refuse_mapped_mask(arguments: Arguments) -> None:
    """Raise TransformError for a block mask that is another for each call that vmap maps over."""
    if any(is_mapped(tensor) for tensor in (*arguments.mask, *arguments.mask_captured)):
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
    # The tensors keep their places, whichever of them the new program meets first.
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
