"""Whether a mask's bits are up to date with the tensors that its mask_mod captures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torchyard_attention._mask_blocks._evaluation import first_slots, partial_bits
from torchyard_attention._torch_compat import version_of
from torchyard_attention.contract import MaskBlocks

__all__ = ["current", "stale", "versions"]


def current(mask: MaskBlocks, lengths: tuple[int, int]) -> MaskBlocks:
    """Return a mask with its bits evaluated again if a captured tensor was changed in place.

    Args:
        mask: the mask.
        lengths: (Sq, Sk).
    """
    source = mask.source
    if source is None or not source.captured or not stale(source.captured, source.versions):
        return mask
    bits = partial_bits(
        source.text,
        source.captured,
        mask.kv_num_blocks,
        mask.kv_indices,
        lengths,
        mask.block_size,
    )
    return replace(mask, bits=bits, first_partial=first_slots(mask.kv_num_blocks))


def versions(captured: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the tensors' version counters; empty where they cannot be followed.

    Inside a compiled graph nothing is changed in place, and tensors of inference mode have no
    counter.
    """
    if torch.compiler.is_compiling():
        return ()
    return tuple(version_of(tensor) for tensor in captured)


def stale(captured: Sequence[Tensor], known: Sequence[int]) -> bool:
    """Return whether a captured tensor was changed in place since its version was read."""
    return any(
        version < 0 or (not tensor.is_inference() and version_of(tensor) != version)
        for tensor, version in zip(captured, known, strict=False)
    )
