"""The ops that evaluate a mask_mod's program as blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchyard_attention._mask_blocks import _evaluation
from torchyard_attention._mask_blocks._intervals import causal_visibility
from torchyard_attention._mask_blocks._structured import blocks_within
from torchyard_attention._mods._trace import CAUSAL
from torchyard_attention._ops._arguments import or_none
from torchyard_attention._ops._operators import OPERATORS, isolated
from torchyard_attention._ops._transforms._refused import constant
from torchyard_attention._torch_compat import data_dependent_size
from torchyard_attention.contract import MaskBlocks

_BLOCK_MASK_SCHEMA: Final = (
    "block_mask(Tensor anchor, Tensor[]? captured, str text, SymInt batch, SymInt heads, "
    "SymInt q_length, SymInt kv_length, int rows, int keys) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_PARTIAL_BITS_SCHEMA: Final = (
    "partial_bits(Tensor kv_num_blocks, Tensor kv_indices, Tensor full_kv_num_blocks, "
    "Tensor full_kv_indices, Tensor[]? captured, str text, "
    "SymInt q_length, SymInt kv_length, int rows, int keys) -> Tensor"
)


# Which of a mask's tensors are lists of blocks.
_INDICES: Final = (1, 3)


def block_mask(
    text: str,
    captured: Sequence[Tensor],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks:
    """Evaluate a mask program everywhere; see ``_mask_blocks.blocks_of``."""
    anchor = torch.empty(0, device=device)
    tensors = OPERATORS["block_mask"](
        anchor, or_none([tensor.detach() for tensor in captured]), text, *sizes, *block_size
    )
    return MaskBlocks(block_size, *tensors)


def partial_bits(
    text: str,
    captured: Sequence[Tensor],
    lists: tuple[Tensor, Tensor, Tensor, Tensor],
    lengths: tuple[int, int],
    block_size: tuple[int, int],
) -> Tensor:
    """Check lists of blocks and evaluate a mask program on the partial ones.

    Args:
        text: the program.
        captured: its captured tensors.
        lists: kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices.
        lengths: (Sq, Sk).
        block_size: (BQ, BK).
    """
    result: Tensor = OPERATORS["partial_bits"](
        *lists, or_none([tensor.detach() for tensor in captured]), text, *lengths, *block_size
    )
    return result


def _block_mask(
    anchor: Tensor,
    captured: list[Tensor] | None,
    text: str,
    batch: int,
    heads: int,
    q_length: int,
    kv_length: int,
    rows: int,
    keys: int,
) -> tuple[Tensor, ...]:
    sizes, block_size, device = (batch, heads, q_length, kv_length), (rows, keys), anchor.device
    if text in CAUSAL:
        # A graph makes it in each call, and may write into its buffers when it reads them no more.
        return tuple(tensor.clone() for tensor in _causal(sizes, block_size, device))
    return _evaluation.blocks_of(text, tuple(captured or ()), sizes, block_size, device).tensors


@lru_cache(maxsize=16)
def _causal(
    sizes: tuple[int, int, int, int], block_size: tuple[int, int], device: torch.device
) -> tuple[Tensor, ...]:
    """Return the tensors of the mask ``q >= k``, lists of blocks in the fake's widths."""
    program = min(CAUSAL)
    blocks = blocks_within(program, (), causal_visibility, sizes, block_size, device)
    assert blocks is not None
    width = -(-sizes[3] // block_size[1])
    return tuple(
        pad(found, (0, width - found.shape[-1])) if place in _INDICES else found
        for place, found in enumerate(blocks.tensors)
    )


def _block_mask_fake(
    anchor: Tensor,
    captured: list[Tensor] | None,
    text: str,
    batch: int,
    heads: int,
    q_length: int,
    kv_length: int,
    rows: int,
    keys: int,
) -> tuple[Tensor, ...]:
    counts = (batch, heads, -(-q_length // rows))
    lists = (*counts, -(-kv_length // keys))
    partial = data_dependent_size()
    return (
        anchor.new_empty(counts, dtype=torch.int32),
        anchor.new_empty(lists, dtype=torch.int32),
        anchor.new_empty(counts, dtype=torch.int32),
        anchor.new_empty(lists, dtype=torch.int32),
        anchor.new_empty((partial, rows, -(-keys // 8)), dtype=torch.uint8),
        anchor.new_empty(counts, dtype=torch.int64),
    )


def _partial_bits(*args: Any) -> Tensor:
    *lists, captured, text, q_length, kv_length, rows, keys = args
    _evaluation.check_lists(*lists, blocks=-(-kv_length // keys))
    return _evaluation.partial_bits(
        text, tuple(captured or ()), lists[0], lists[1], (q_length, kv_length), (rows, keys)
    )


def _partial_bits_fake(*args: Any) -> Tensor:
    rows, keys = args[-2:]
    partial = data_dependent_size()
    bits: Tensor = args[1].new_empty((partial, rows, -(-keys // 8)), dtype=torch.uint8)
    return bits


_OF_MASKS: Final = constant(
    "create_block_mask",
    derivative=None,
    mapped=(
        "expected a mask_mod whose captured tensors are the same for all, got one that is mapped "
        "over, and masks may differ in their number of blocks; make the mask outside of vmap, with "
        "a batch dimension where it differs, and pass the whole batch without vmap"
    ),
)
OPERATORS.define(_BLOCK_MASK_SCHEMA, isolated(_block_mask), _block_mask_fake, transformed=_OF_MASKS)
OPERATORS.define(
    _PARTIAL_BITS_SCHEMA, isolated(_partial_bits), _partial_bits_fake, transformed=_OF_MASKS
)
