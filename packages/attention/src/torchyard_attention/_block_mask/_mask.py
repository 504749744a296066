"""BlockMask: which blocks of queries and keys are visible, and the bits of the partial ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask._bits import MaskBits
from torchyard_attention._block_mask._block_lists import NO_ORDER
from torchyard_attention._block_mask._lists import (
    DEFAULT_BLOCK_SIZE,
    WriteOrder,
    checked_lists,
    length_of,
)
from torchyard_attention._block_mask._parts import cut_bits, parts_of, taken
from torchyard_attention._block_mask._picture import described
from torchyard_attention._block_mask._recorded import (
    MaskMod,
    RecordedMask,
    is_importable,
    of_first,
    record_mask,
    show_everything,
)
from torchyard_attention._mask_blocks._evaluation import first_slots
from torchyard_attention._mask_blocks._source import versions
from torchyard_attention._ops import _masks


class BlockMask(MaskBits):
    """A block-sparse mask; the fields that torch.nn.attention.flex_attention.BlockMask has, and the
    bits of its partial blocks.

    With Bm in {1, B}, Hm in {1, Hq}, BQ rows and BK keys per block, Qb and Kb blocks. ``mask_mod``
    and ``seq_lengths`` can be assigned; the lists stay the same then, and the bits of partial
    blocks are evaluated again. Everything else is fixed.

    Attributes:
        seq_lengths: (Sq, Sk).
        kv_num_blocks, kv_indices: int32 [Bm, Hm, Qb] and [Bm, Hm, Qb, Kp]: partial blocks. Kp is at
            least the longest row's count; torch's lists are Kb wide.
        full_kv_num_blocks, full_kv_indices: likewise, with a width of their own: blocks that are
            visible whole; None where none are listed apart from the partial ones.
        q_num_blocks, q_indices, full_q_num_blocks, full_q_indices: int32 [Bm, Hm, Kb] and
            [Bm, Hm, Kb, Qb]: the same by columns; made when they are read. None where
            compute_q_blocks was False, the full ones also where full_kv_num_blocks is.
        bits: uint8 [N, BQ, ceil(BK / 8)], see ``torchyard_attention.contract.MaskBlocks``.
        first_partial: int64 [Bm, Hm, Qb].
        BLOCK_SIZE: (BQ, BK).
        mask_mod: the function that it was made from; None where there is none, as in a slice.
        mask_text: its program.
        mask_captured: the tensors that the program captures.
        mask_versions: their versions when the bits were made, so that a tensor that was changed
            in place since then is noticed.
        causal: whether the mask is exactly ``q >= k``.
        of_first: whether mask_mod reads the batch, and the head, and the mask is that of the first
            one alone. Such a mask is refused for a query of several.
        dq_write_order, dq_write_order_full, dq_kv_order, dq_kv_order_spt: as torch's; kept and
            handed on, and read by nothing here.
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor,
        full_kv_indices: Tensor,
        bits: Tensor,
        first_partial: Tensor,
        BLOCK_SIZE: tuple[int, int],
        mask_mod: MaskMod | None = None,
        mask_text: str = "",
        mask_captured: tuple[Tensor, ...] = (),
        mask_versions: tuple[int, ...] = (),
        causal: bool = False,
        *,
        of_first: tuple[bool, bool] = (False, False),
        q_lists: bool = True,
        full_lists: bool = True,
        order: WriteOrder = NO_ORDER,
    ) -> None:
        super().__init__(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            BLOCK_SIZE,
            q_lists,
            full_lists,
            order,
        )
        self._set_bits(
            bits, first_partial, mask_mod, mask_text, mask_captured, mask_versions, causal, of_first
        )

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = DEFAULT_BLOCK_SIZE,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | bool | None = None,
    ) -> BlockMask:
        """Build a mask from lists of blocks, as torch's method of the same name.

        A pair is visible if its block is listed as full, or listed as partial and allowed by
        ``mask_mod`` (everything, without one). Lists may be narrower than Kb where ``seq_lengths``
        is given.

        Raises:
            ValueError, TypeError: shapes or dtypes do not fit; names the argument.
        """
        lists, lengths, block_size = checked_lists(
            kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, BLOCK_SIZE, seq_lengths
        )
        of = "BlockMask.from_kv_blocks"
        if mask_mod is not None:
            arguments.function(of, "mask_mod", mask_mod)
        compute_q_blocks = arguments.boolean(of, "compute_q_blocks", compute_q_blocks)
        text, captured = record_mask(mask_mod or show_everything, lists[0].device)
        return cls(
            lengths,
            *lists,
            _masks.partial_bits(text, captured, lists, lengths, block_size),
            first_slots(lists[0]),
            block_size,
            mask_mod,
            text,
            tuple(captured),
            versions(captured),
            of_first=of_first(text, lists[0]),
            q_lists=compute_q_blocks,
            full_lists=full_kv_num_blocks is not None,
            order=WriteOrder.given(dq_write_order, dq_write_order_full, dq_kv_order),
        )

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Return the fields in torch's order; lengths and block sizes as one item each, or two."""
        flatten = arguments.boolean("BlockMask.as_tuple", "flatten", flatten)
        lengths: tuple[Any, ...] = self.seq_lengths if flatten else (self.seq_lengths,)
        sizes: tuple[Any, ...] = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        return (
            *lengths,
            self.kv_num_blocks,
            self.kv_indices,
            self.full_kv_num_blocks,
            self.full_kv_indices,
            self.q_num_blocks,
            self.q_indices,
            self.full_q_num_blocks,
            self.full_q_indices,
            self.dq_write_order,
            self.dq_write_order_full,
            self.dq_kv_order,
            self.dq_kv_order_spt,
            *sizes,
            self.mask_mod,
        )

    # Parts.

    def to(self, device: torch.device | str) -> BlockMask:
        """Return the mask with its tensors on another device."""
        device = arguments.device("BlockMask.to", "device", device)
        self._refresh()
        return self._like([tensor.to(device) for tensor in self._tensors()], self._seq_lengths)

    def __getitem__(
        self, index: int | slice | Tensor | tuple[int | slice | Tensor, ...]
    ) -> BlockMask:
        """Return the mask of some batches, heads and rows of blocks; dimensions stay.

        Unlike torch's, the result can be used: it includes the bits of its blocks, and its
        seq_lengths are those of its rows. Only whole rows of blocks can be taken, from the first to
        the last of them in order.

        Raises:
            IndexError: a number is out of range.
            ValueError: the last row of blocks is short and is not taken last.
        """
        if self._order.kv_order is not None:
            raise ValueError(
                "BlockMask[...]: the order of a mask that was given dq_kv_order as a tensor cannot "
                "be cut; make a mask with BlockMask.from_kv_blocks and an order of its own"
            )
        self._refresh()
        place, q_length, first = taken(index, self._kv_num_blocks.shape, self)
        kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices = (
            tensor[place].contiguous() for tensor in self._lists()
        )
        return BlockMask(
            (q_length, self._seq_lengths[1]),
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            self.bits,
            self._first_partial[place].contiguous(),
            self._block_size,
            causal=self._causal and first,
            of_first=self.of_first,
            q_lists=self._q_lists,
            full_lists=self._full_lists,
            order=WriteOrder(self.dq_write_order is not None, descending=self._order.descending),
        )

    def part(self, q_blocks: Sequence[int], kv_blocks: Sequence[int]) -> BlockMask:
        """Return the mask of some rows and columns of blocks, as they follow one another.

        The result is the mask of a sequence of those blocks alone: its query i is the i-th query of
        the listed blocks. It has its own copy of the bits of its partial blocks.

        Args:
            q_blocks, kv_blocks: numbers of blocks, each at most once, in any order. The last block
                of a sequence may be shorter than the others, and can then only be listed last.

        Raises:
            ValueError: a number is out of range or repeated, or a short block is not last.
        """
        lengths = (
            length_of("q_blocks", q_blocks, self._seq_lengths[0], self._block_size[0]),
            length_of("kv_blocks", kv_blocks, self._seq_lengths[1], self._block_size[1]),
        )
        return BlockMask(
            lengths,
            *parts_of(self, q_blocks, kv_blocks),
            self._block_size,
            causal=self._causal
            and list(q_blocks) == list(kv_blocks) == sorted(q_blocks)
            and self._block_size[0] == self._block_size[1],
            of_first=self.of_first,
            full_lists=self._full_lists,
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Return the mask of the first queries and keys; torch's method of the same name."""
        lengths = (new_q_len, new_kv_len)
        if any(new > old for new, old in zip(lengths, self._seq_lengths, strict=True)):
            raise ValueError(
                f"BlockMask._adjust: expected lengths up to {self._seq_lengths}, got {lengths}; "
                f"make a longer mask with create_block_mask"
            )
        self._refresh()
        blocks = [range(-(-n // size)) for n, size in zip(lengths, self._block_size, strict=True)]
        *lists, bits, first = parts_of(self, *blocks)
        bits = cut_bits(bits, lists[0], lists[1], lengths, self._block_size)
        return self._like([*lists, bits, first, *self._mask_captured], lengths)

    def without_program(self) -> BlockMask:
        """Return the mask without the function and the tensors that it was made from.

        Changes of the captured tensors then have no effect.
        """
        return self._like(self.block_tensors(), self._seq_lengths, program=False)

    # What becomes of it in trees of tensors, in copies and in files.

    def _like(
        self, tensors: Sequence[Tensor], lengths: tuple[int, int], *, program: bool = True
    ) -> BlockMask:
        """Return the same mask with other tensors, in the order of ``_tensors``, and lengths."""
        captured = tuple(tensors[6:])
        kv_num, kv_indices, full_num, full_indices, bits, first = tensors[:6]
        return BlockMask(
            lengths,
            kv_num,
            kv_indices,
            full_num,
            full_indices,
            bits,
            first,
            self._block_size,
            self._mask_mod if program else None,
            self._mask_text if program else "",
            captured,
            versions(captured),
            self._causal,
            of_first=self._of_first,
            q_lists=self._q_lists,
            full_lists=self._full_lists,
            order=self._order,
        )

    def __copy__(self) -> BlockMask:
        other = object.__new__(BlockMask)
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> BlockMask:
        self._refresh()
        return self._like(copy.deepcopy(self._tensors(), memo), self._seq_lengths)

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle stores: tensors and the program; of mask_mod no more than its name.

        A function that has no name to be found by, such as a lambda, is stored as its program.
        """
        self._refresh()
        state = {**self.__dict__, "_as_blocks": None, "_path_mask": None}
        if self._mask_mod is not None and not is_importable(self._mask_mod):
            state["_mask_mod"] = RecordedMask(self._mask_text, self._mask_captured)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # The tensors that were read have new version counters.
        self._mask_versions = versions(self._mask_captured)

    def __repr__(self) -> str:
        return described(self)
