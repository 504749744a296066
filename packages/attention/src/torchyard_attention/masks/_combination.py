"""Combinations of mask_mods, as torch.nn.attention.flex_attention has them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask import MaskMod
from torchyard_attention._mask_blocks._intervals import (
    BlockRows,
    StructuredMask,
    Visibility,
    nothing_whole,
    visibility_of,
)
from torchyard_attention._mods._evaluate import TracedMod, evaluate_mask
from torchyard_attention._mods._recordings import recorded
from torchyard_attention._mods._trace import MASK_INPUTS, trace
from torchyard_attention._validation import mask_sizes

# A byte each: 4 GiB.
_MOST_PAIRS: Final = 1 << 32


class _Combined:
    """Mask functions under one name, which can be changed as a function's.

    Attributes:
        mask_mods: the functions.
    """

    def __init__(self, mask_mods: tuple[MaskMod, ...], name: str) -> None:
        self.mask_mods = mask_mods
        self.__name__ = name


class _Conjunction(_Combined):
    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        if not self.mask_mods:
            return b.new_ones((), dtype=torch.bool)
        result: Tensor = self.mask_mods[0](b, h, q_idx, kv_idx)
        for mask_mod in self.mask_mods[1:]:
            result = result & mask_mod(b, h, q_idx, kv_idx)
        return result

    def visibility(self, rows: BlockRows) -> Visibility | None:
        known = [visibility_of(mask_mod, rows) for mask_mod in self.mask_mods]
        parts = [part for part in known if part is not None]
        if not parts:
            return None
        seen = reduce(and_, parts)
        return seen if len(parts) == len(known) else nothing_whole(seen)


class _Disjunction(_Combined):
    def __call__(self, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        if not self.mask_mods:
            return b.new_zeros((), dtype=torch.bool)
        result: Tensor = self.mask_mods[0](b, h, q_idx, kv_idx)
        for mask_mod in self.mask_mods[1:]:
            result = result | mask_mod(b, h, q_idx, kv_idx)
        return result

    def visibility(self, rows: BlockRows) -> Visibility | None:
        known = [visibility_of(mask_mod, rows) for mask_mod in self.mask_mods]
        parts = [part for part in known if part is not None]
        return reduce(or_, parts) if parts and len(parts) == len(known) else None


def and_masks(*mask_mods: MaskMod) -> StructuredMask:
    """Return a mask_mod that shows what all of the given ones show; everything, if none is.

    It knows its structure if any of the given ones does.
    """
    _check_callable(mask_mods)
    return _Conjunction(mask_mods, "and_mask")


def or_masks(*mask_mods: MaskMod) -> StructuredMask:
    """Return a mask_mod that shows what any of the given ones shows; nothing, if none is.

    It knows its structure if all of the given ones do.
    """
    _check_callable(mask_mods)
    return _Disjunction(mask_mods, "or_mask")


def noop_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """Show everything."""
    return b.new_ones((), dtype=torch.bool)


def create_mask(
    mask_mod: MaskMod | Callable[[Any, Any, Any, Any, Any], Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return a mask_mod as a dense mask: bool [B, H, Q_LEN, KV_LEN]. For small sizes and tests.

    Of a score_mod, a function of five arguments, the mask shows what it does not make -inf of a
    score of 0, as torch's function of the same name.
    """
    of = "create_mask"
    place = arguments.device(of, "device", device)
    sizes = mask_sizes(of, B, H, Q_LEN, KV_LEN)
    if math.prod(sizes) > _MOST_PAIRS:
        raise arguments.wrong_value(
            of, "Q_LEN", "at most 2**32 pairs in all", sizes, "create_block_mask holds no pairs"
        )
    arguments.function(of, "mask_mod", mask_mod)
    b, h, q, k = (torch.arange(n, device=place) for n in sizes)
    if _is_score_mod(mask_mod):
        text, captured = recorded(mask_mod, torch.float32, place)
        scores = TracedMod(text, tuple(captured)).apply(
            torch.zeros(sizes, device=place), b, h, q, k, *captured
        )
        return (scores != -torch.inf).expand(sizes).contiguous()
    text, captured = trace(mask_mod, "mask_mod", MASK_INPUTS, torch.float32, place)
    return evaluate_mask(text, b, h, q, k, tuple(captured)).contiguous()


def _is_score_mod(mod: Any) -> bool:
    """Return whether a function takes a score before the four indices; by names, not by a call."""
    try:
        parameters = inspect.signature(mod).parameters.values()
    except (TypeError, ValueError):
        return False
    taken = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in taken and p.default is inspect.Parameter.empty]
    return len(needed) == 5


def _check_callable(mask_mods: tuple[MaskMod, ...]) -> None:
    for position, mask_mod in enumerate(mask_mods):
        if not callable(mask_mod):
            raise arguments.wrong_kind(
                "and_masks, or_masks",
                f"mask_mods[{position}]",
                "a function (b, h, q_idx, kv_idx) -> bool",
                mask_mod,
            )
