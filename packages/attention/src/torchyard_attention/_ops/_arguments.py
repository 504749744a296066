"""What a call's forward and backward share, in the form in which the ops take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from torchyard_attention._mask_blocks import _evaluation
from torchyard_attention._mods._evaluate import TracedMod
from torchyard_attention._mods._trace import IDENTITY
from torchyard_attention._options import parse_options
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_attention.dropout import Dropout
from torchyard_programs import stored

__all__ = ["COMMON", "Arguments", "or_none", "stale", "versions"]

# How many arguments each op has in common, dropout aside, which stands last.
COMMON: Final = 13


class Arguments(NamedTuple):
    """What forward and backward share, in the order of ``_COMMON``."""

    query: Tensor
    key: Tensor
    value: Tensor
    score_captured: list[Tensor]
    score_text: str
    mask: list[Tensor]
    block_size: list[int]
    causal: bool
    mask_captured: list[Tensor]
    mask_text: str
    mask_versions: list[int]
    scale: float
    options: str
    dropout_p: float = 0.0
    dropout_seed: Tensor | None = None

    @classmethod
    def of(cls, given: Sequence[Any], dropout: Sequence[Any] = ()) -> Arguments:
        """Name an op's arguments.

        Args:
            given: those of ``_COMMON``.
            dropout: the op's last ones, of which torch leaves out what is as the schema says.
        """
        return cls(*([] if item is None else item for item in given), *dropout)

    def given(self) -> list[Any]:
        """Return the arguments of ``_COMMON`` as the ops take them."""
        return [or_none(item) if isinstance(item, list) else item for item in self[:COMMON]]

    def dropout(self) -> tuple[Any, ...]:
        """Return the ops' last arguments; none where nothing is dropped."""
        return (self.dropout_p, self.dropout_seed) if self.dropout_p else ()

    def call(
        self, lse: bool, max_scores: bool, captured_grad: tuple[bool, ...] = ()
    ) -> AttentionCall:
        """Return the contract's view of these arguments."""
        score_mod = None
        if self.score_text != IDENTITY:
            score_mod = TracedMod(self.score_text, stored(self.score_captured))
        return AttentionCall(
            self.query,
            self.key,
            self.value,
            score_mod,
            self._blocks() if self.mask else None,
            self.scale,
            lse,
            max_scores,
            parse_options(self.options) if self.options else (),
            captured_grad,
            dropout=self._dropout(),
        )

    def _dropout(self) -> Dropout | None:
        if not self.dropout_p:
            return None
        assert self.dropout_seed is not None
        return Dropout(self.dropout_p, self.dropout_seed)

    def _blocks(self) -> MaskBlocks:
        blocks = MaskBlocks((self.block_size[0], self.block_size[1]), *self.mask)
        if not stale(self.mask_captured, self.mask_versions):
            return blocks
        bits = _evaluation.partial_bits(
            self.mask_text,
            tuple(self.mask_captured),
            blocks.kv_num_blocks,
            blocks.kv_indices,
            (self.query.shape[2], self.key.shape[2]),
            blocks.block_size,
        )
        first = _evaluation.first_slots(blocks.kv_num_blocks)
        return replace(blocks, bits=bits, first_partial=first)


def versions(captured: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the tensors' version counters; empty where they cannot be followed.

    Inside a compiled graph nothing is changed in place, and tensors of inference mode keep no
    counter.
    """
    if torch.compiler.is_compiling():
        return ()
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in captured)


def stale(captured: Sequence[Tensor], kept: Sequence[int]) -> bool:
    """Return whether a captured tensor was changed in place since the bits were made."""
    return any(
        version < 0 or (not tensor.is_inference() and tensor._version != version)
        for tensor, version in zip(captured, kept, strict=False)
    )


def or_none(items: list[Any]) -> list[Any] | None:
    """Return a list as the ops take it."""
    return items or None
