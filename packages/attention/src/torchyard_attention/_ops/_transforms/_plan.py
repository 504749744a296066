"""A call as torch.autograd.Function takes it: one object that holds no tensor, then the tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from torchyard_attention._ops._arguments import Arguments

__all__ = ["Op", "Plan", "tensors"]

Op: TypeAlias = Callable[..., Any]

# Stands for a tensor that is passed beside the plan.
_NOTHING: Final = torch.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What of a call is no tensor.

    Attributes:
        op: what computes it.
        settings: the arguments, with nothing in place of tensors.
        counts: how many tensors score_mod captures, the mask has, mask_mod captures, and dropout
            has.
        rest: the op's arguments after those.
    """

    op: Op
    settings: Arguments
    counts: tuple[int, int, int, int]
    rest: tuple[Any, ...]

    @classmethod
    def of(cls, op: Op, arguments: Arguments, rest: tuple[Any, ...]) -> Plan:
        """Return the plan of a call."""
        lists = (arguments.score_captured, arguments.mask, arguments.mask_captured)
        settings = arguments._replace(
            query=_NOTHING,
            key=_NOTHING,
            value=_NOTHING,
            score_captured=[],
            mask=[],
            mask_captured=[],
            dropout_seed=None,
        )
        seeds = 0 if arguments.dropout_seed is None else 1
        return cls(op, settings, (len(lists[0]), len(lists[1]), len(lists[2]), seeds), rest)

    def arguments(self, tensors: Sequence[Tensor]) -> Arguments:
        """Return the arguments of the call with these tensors, in the order of :func:`tensors`."""
        query, key, value, *lists = tensors
        scores, masks, of_masks, seeds = self.counts
        end = scores + masks + of_masks
        return self.settings._replace(
            query=query,
            key=key,
            value=value,
            score_captured=lists[:scores],
            mask=lists[scores : scores + masks],
            mask_captured=lists[scores + masks : end],
            dropout_seed=lists[end] if seeds else None,
        )


def tensors(arguments: Arguments) -> tuple[Tensor, ...]:
    """Return a call's tensors: query, key, value, the three lists and dropout's seed."""
    return (
        *arguments[:3],
        *arguments.score_captured,
        *arguments.mask,
        *arguments.mask_captured,
        *(() if arguments.dropout_seed is None else (arguments.dropout_seed,)),
    )
