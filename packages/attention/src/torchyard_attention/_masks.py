"""Helpers around mask_mods that torch.nn.attention.flex_attention has too."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard_attention._block_mask import MaskMod
from torchyard_attention._evaluate import evaluate_mask
from torchyard_attention._trace import MASK_INPUTS, trace


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask_mod that shows what all of the given ones show; everything, if none is."""
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_ones((), dtype=torch.bool)
        for mask_mod in mask_mods:
            result = result & mask_mod(b, h, q_idx, kv_idx)
        return result

    return and_mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return a mask_mod that shows what any of the given ones shows; nothing, if none is."""
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_zeros((), dtype=torch.bool)
        for mask_mod in mask_mods:
            result = result | mask_mod(b, h, q_idx, kv_idx)
        return result

    return or_mask


def noop_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    """Show everything."""
    return b.new_ones((), dtype=torch.bool)


def create_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return a mask_mod as a dense mask: bool [B, H, Q_LEN, KV_LEN]. For small sizes and tests."""
    place = torch.device(device)
    text, captured = trace(mask_mod, "mask_mod", MASK_INPUTS, torch.float32, place)
    b, h, q, k = (torch.arange(n, device=place) for n in (B or 1, H or 1, Q_LEN, KV_LEN))
    return evaluate_mask(text, b, h, q, k, tuple(captured)).contiguous()


def _check_callable(mask_mods: tuple[MaskMod, ...]) -> None:
    for position, mask_mod in enumerate(mask_mods):
        if not callable(mask_mod):
            raise TypeError(
                f"mask_mods[{position}]: expected a function (b, h, q_idx, kv_idx) -> bool, got "
                f"{type(mask_mod).__name__}"
            )
