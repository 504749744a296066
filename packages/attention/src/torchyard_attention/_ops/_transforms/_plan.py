"""A call as torch.autograd.Function takes it: one object that holds no tensor, then the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._source import current
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.dropout import Dropout

__all__ = ["Op", "Plan", "captured_of", "tensors", "with_captured", "with_current_mask"]

Op: TypeAlias = Callable[..., Any]

# Stands for a tensor that is passed next to the plan.
_NOTHING: Final = torch.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The parts of a call that are not tensors.

    Attributes:
        op: computes it.
        skeleton: the call, with an empty tensor in place of each of its tensors.
        counts: how many tensors score_mod captures, the mask has, and mask_mod captures.
        use: the implementation that is demanded, or an empty string.
    """

    op: Op
    skeleton: AttentionCall
    counts: tuple[int, int, int]
    use: str

    @classmethod
    def of(cls, op: Op, call: AttentionCall, use: str = "") -> Plan:
        """Return the plan of a call."""
        mask = call.mask
        source = None if mask is None else mask.source
        counts = (
            len(captured_of(call)),
            0 if mask is None else len(mask.tensors),
            0 if source is None else len(source.captured),
        )
        nothing = [_NOTHING] * len(tensors(call))
        return cls(op, _with_tensors(call, nothing, counts), counts, use)

    @property
    def others(self) -> int:
        """How many tensors have no derivative: the mask's, those of mask_mod, dropout's seed."""
        return sum(self.counts[1:]) + (self.skeleton.dropout is not None)

    def call(self, tensors: Sequence[Tensor]) -> AttentionCall:
        """Return the call with these tensors, in the order of :func:`tensors`."""
        return _with_tensors(self.skeleton, tensors, self.counts)


def captured_of(call: AttentionCall) -> tuple[Tensor, ...]:
    """Return the tensors that a call's score_mod captures."""
    return () if call.score_mod is None else call.score_mod.captured


def tensors(call: AttentionCall) -> tuple[Tensor, ...]:
    """Return a call's tensors: query, key, value, what score_mod captures, the mask's, what
    mask_mod captures, and dropout's seed."""
    mask = call.mask
    source = None if mask is None else mask.source
    return (
        call.query,
        call.key,
        call.value,
        *captured_of(call),
        *(() if mask is None else mask.tensors),
        *(() if source is None else source.captured),
        *(() if call.dropout is None else (call.dropout.seed,)),
    )


def with_captured(call: AttentionCall, others: Mapping[int, Tensor]) -> AttentionCall:
    """Return a call whose score_mod captures other tensors in some places."""
    score = call.score_mod
    if score is None or not others:
        return call
    captured = tuple([others.get(place, tensor) for place, tensor in enumerate(score.captured)])
    return replace(call, score_mod=TracedMod(score.text, captured))


def with_current_mask(call: AttentionCall) -> AttentionCall:
    """Return a call whose mask has bits that are up to date, and that no longer change."""
    mask = call.mask
    if mask is None or mask.source is None:
        return call
    mask = current(mask, (call.query.shape[2], call.key.shape[2]))
    return replace(call, mask=replace(mask, source=None))


def _with_tensors(
    call: AttentionCall, tensors: Sequence[Tensor], counts: tuple[int, int, int]
) -> AttentionCall:
    query, key, value, *rest = tensors
    scores, masks, sources = counts
    score, mask, dropout = call.score_mod, call.mask, call.dropout
    if score is not None:
        score = TracedMod(score.text, tuple(rest[:scores]))
    if mask is not None:
        source = mask.source
        if source is not None:
            first = scores + masks
            source = replace(source, captured=tuple(rest[first : first + sources]))
        mask = MaskBlocks(
            mask.block_size, *rest[scores : scores + masks], causal=mask.causal, source=source
        )
    if dropout is not None:
        dropout = Dropout(dropout.probability, rest[-1])
    return replace(
        call, query=query, key=key, value=value, score_mod=score, mask=mask, dropout=dropout
    )
