"""``create_block_mask``: a block mask from a function of indices."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask._lists import (
    DEFAULT_BLOCK_SIZE,
    WriteOrder,
    dense_blocks,
    fitted,
    pair_of,
)
from torchyard_attention._block_mask._mask import BlockMask
from torchyard_attention._block_mask._recorded import MaskMod, of_first, record_mask
from torchyard_attention._mask_blocks._evaluation import first_slots, ordered
from torchyard_attention._mask_blocks._intervals import visibility_of
from torchyard_attention._mask_blocks._source import versions
from torchyard_attention._mask_blocks._structured import blocks_within
from torchyard_attention._mods._trace import CAUSAL
from torchyard_attention._ops import _masks
from torchyard_attention._torch_compat import is_fake_mode_active
from torchyard_attention._validation import mask_sizes
from torchyard_attention.contract import MaskBlocks

__all__ = ["create_block_mask"]


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: torch.device | str | None = None,
    BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """Build a block mask from a function of indices, as torch's function of the same name.

    The function is recorded, not run per pair. A mask that knows its structure (those of
    ``torchyard_attention.masks``, and combinations of them by and_masks and or_masks) is evaluated
    only in blocks that its structure leaves open, any other function one stripe of blocks at a
    time. The result is the same. No Sq x Sk mask is ever held, with or without compilation. Inside
    of torch.compile, torch.export and with fake tensors every mask is evaluated by stripes.

    Args:
        mask_mod: ``(b, h, q_idx, kv_idx) -> bool``: whether a query sees a key.
        B: batches that the function distinguishes; None: none. If it reads ``b`` all the same, the
            mask is that of batch 0 and is refused for a query of several batches.
        H: query heads likewise.
        Q_LEN, KV_LEN: Sq and Sk.
        device: of the mask; None: torch's current accelerator, else cpu.
        BLOCK_SIZE: rows and keys per block. What is over 4096 and longer than the sequence is made
            as long as the longer of these.
        _compile: accepted for torch's signature; there is nothing to compile.
        separate_full_blocks: whether wholly visible blocks are listed apart; False lists them as
            partial ones, and the mask's
            fields of full blocks are None.
        compute_dq_write_order: whether the mask has dq_write_order, which torch's deterministic
            kernels read; nothing here does.
        dq_kv_order: the order of columns that it speaks of: True: from the last to the first.

    Raises:
        ProgramError: the function does something that cannot be recorded, or returns no bool.
        ValueError: a length or a block size is out of range, or the mask takes more memory or work
            than there is.
    """
    block_size = pair_of(BLOCK_SIZE)
    of = "create_block_mask"
    arguments.function(of, "mask_mod", mask_mod)
    sizes = mask_sizes(of, B, H, Q_LEN, KV_LEN)
    Q_LEN, KV_LEN = sizes[2:]
    block_size = fitted(block_size, (Q_LEN, KV_LEN))
    arguments.boolean(of, "_compile", _compile)
    separate_full_blocks = arguments.boolean(of, "separate_full_blocks", separate_full_blocks)
    compute_dq_write_order = arguments.boolean(of, "compute_dq_write_order", compute_dq_write_order)
    dq_kv_order = arguments.boolean(
        of, "dq_kv_order", dq_kv_order, remedy="BlockMask.from_kv_blocks takes an order as a tensor"
    )
    place = default_device() if device is None else arguments.device(of, "device", device)
    text, captured = record_mask(mask_mod, place)
    blocks = _blocks(mask_mod, text, captured, sizes, block_size, place)
    if not separate_full_blocks:
        blocks = _without_full_blocks(blocks, text, captured, sizes)
    return BlockMask(
        seq_lengths=(Q_LEN, KV_LEN),
        kv_num_blocks=blocks.kv_num_blocks,
        kv_indices=blocks.kv_indices,
        full_kv_num_blocks=blocks.full_kv_num_blocks,
        full_kv_indices=blocks.full_kv_indices,
        bits=blocks.bits,
        first_partial=blocks.first_partial,
        BLOCK_SIZE=block_size,
        mask_mod=mask_mod,
        mask_text=text,
        mask_captured=tuple(captured),
        mask_versions=versions(captured),
        causal=separate_full_blocks and text in CAUSAL,
        of_first=of_first(text, blocks.kv_num_blocks),
        full_lists=separate_full_blocks,
        order=WriteOrder(compute_dq_write_order, descending=dq_kv_order)
        if compute_dq_write_order
        else WriteOrder(),
    )


def default_device() -> torch.device:
    """Return the device of a mask where none is named."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _blocks(
    mask_mod: MaskMod,
    text: str,
    captured: list[Tensor],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks:
    if not torch.compiler.is_compiling() and not is_fake_mode_active():
        with torch.no_grad():
            blocks = blocks_within(
                text, tuple(captured), partial(visibility_of, mask_mod), sizes, block_size, device
            )
        if blocks is not None:
            return blocks
    return _masks.block_mask(text, captured, sizes, block_size, device)


def _without_full_blocks(
    blocks: MaskBlocks, text: str, captured: list[Tensor], sizes: tuple[int, int, int, int]
) -> MaskBlocks:
    """Return the same mask with its full blocks listed as partial ones."""
    kv_blocks = -(-sizes[3] // blocks.block_size[1])
    listed = dense_blocks(blocks.kv_num_blocks, blocks.kv_indices, kv_blocks) | dense_blocks(
        blocks.full_kv_num_blocks, blocks.full_kv_indices, kv_blocks
    )
    counts, indices = ordered(listed)
    none = torch.zeros_like(counts)
    lists = (counts, indices, none, torch.zeros_like(indices))
    bits = _masks.partial_bits(text, captured, lists, (sizes[2], sizes[3]), blocks.block_size)
    return MaskBlocks(blocks.block_size, *lists, bits, first_slots(counts))
