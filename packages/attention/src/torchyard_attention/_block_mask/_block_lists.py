"""The lists of blocks of a block mask, in each of torch's forms."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask._lists import (
    WriteOrder,
    dense_blocks,
    transposed,
    write_order,
)
from torchyard_attention._block_mask._picture import picture

__all__ = ["NO_ORDER", "BlockLists"]

NO_ORDER: Final = WriteOrder()


# The most rows of a picture, and pictures.
_MOST_CELLS: Final = 1 << 62


def _cells(of: str, name: str, value: object) -> int:
    found = arguments.integer(of, name, value, least=-1, most=_MOST_CELLS)
    if found == 0:
        raise arguments.wrong_value(of, name, "positive sizes or -1", found)
    return found


class BlockLists:
    """Which blocks of a mask are visible, fully or in part; see :class:`BlockMask`."""

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor,
        full_kv_indices: Tensor,
        block_size: tuple[int, int],
        q_lists: bool,
        full_lists: bool,
        order: WriteOrder,
    ) -> None:
        self._seq_lengths = seq_lengths
        self._kv_num_blocks = kv_num_blocks
        self._kv_indices = kv_indices
        self._full_kv_num_blocks = full_kv_num_blocks
        self._full_kv_indices = full_kv_indices
        self._block_size = block_size
        self._q_lists = q_lists
        self._full_lists = full_lists
        self._order = order

    def _lists(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (
            self._kv_num_blocks,
            self._kv_indices,
            self._full_kv_num_blocks,
            self._full_kv_indices,
        )

    @property
    def kv_num_blocks(self) -> Tensor:
        return self._kv_num_blocks

    @property
    def kv_indices(self) -> Tensor:
        return self._kv_indices

    @property
    def full_kv_num_blocks(self) -> Tensor | None:
        return self._full_kv_num_blocks if self._full_lists else None

    @property
    def full_kv_indices(self) -> Tensor | None:
        return self._full_kv_indices if self._full_lists else None

    @property
    def BLOCK_SIZE(self) -> tuple[int, int]:
        return self._block_size

    def _drop_columns(self, lists: None) -> None:
        """Leave out the lists by columns, which some callers do not need."""
        if lists is not None:
            raise TypeError(
                f"BlockMask: lists by columns follow from those by rows; expected None, which "
                f"leaves all four out, got {type(lists).__name__}"
            )
        self._q_lists = False

    @property
    def q_num_blocks(self) -> Tensor | None:
        return self._columns(self._kv_num_blocks, self._kv_indices)[0] if self._q_lists else None

    @q_num_blocks.setter
    def q_num_blocks(self, lists: None) -> None:
        self._drop_columns(lists)

    @property
    def q_indices(self) -> Tensor | None:
        return self._columns(self._kv_num_blocks, self._kv_indices)[1] if self._q_lists else None

    @q_indices.setter
    def q_indices(self, lists: None) -> None:
        self._drop_columns(lists)

    @property
    def full_q_num_blocks(self) -> Tensor | None:
        return self._full_columns()[0]

    @full_q_num_blocks.setter
    def full_q_num_blocks(self, lists: None) -> None:
        self._drop_columns(lists)

    @property
    def full_q_indices(self) -> Tensor | None:
        return self._full_columns()[1]

    @full_q_indices.setter
    def full_q_indices(self, lists: None) -> None:
        self._drop_columns(lists)

    def _full_columns(self) -> tuple[Tensor | None, Tensor | None]:
        if not self._q_lists or not self._full_lists:
            return None, None
        return self._columns(self._full_kv_num_blocks, self._full_kv_indices)

    def _columns(self, counts: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        return transposed(dense_blocks(counts, indices, self._kv_blocks))

    @property
    def dq_write_order(self) -> Tensor | None:
        return self._ranks(self.q_indices) if self._order.computed else self._order.partial

    @property
    def dq_write_order_full(self) -> Tensor | None:
        return self._ranks(self.full_q_indices) if self._order.computed else self._order.full

    def _ranks(self, q_indices: Tensor | None) -> Tensor | None:
        if q_indices is None:
            return None
        return write_order(self._visible(), q_indices, bool(self._order.descending))

    @property
    def dq_kv_order(self) -> Tensor | None:
        return self._order.kv_order

    @property
    def dq_kv_order_spt(self) -> bool | None:
        return self._order.descending

    @property
    def shape(self) -> tuple[int, ...]:
        """(Bm, Hm, Sq, Sk)."""
        return (*self.kv_num_blocks.shape[:2], *self._seq_lengths)

    def numel(self) -> int:
        """Return how many (query, key) pairs the mask covers."""
        batch, heads, q_length, kv_length = self.shape
        return batch * heads * q_length * kv_length

    def sparsity(self) -> float:
        """Return the percentage of blocks that are hidden, 0 to 100."""
        blocks = self.kv_num_blocks.numel() * self._kv_blocks
        if blocks == 0:
            return 0.0
        visible = int(self.kv_num_blocks.sum()) + int(self._full_kv_num_blocks.sum())
        return 100.0 * (1.0 - visible / blocks)

    def to_dense(self) -> Tensor:
        """Return which blocks are visible at least in part: int32 [Bm, Hm, Qb, Kb] of 0 and 1."""
        return self._visible().to(torch.int32)

    def _visible(self) -> Tensor:
        partial = dense_blocks(self.kv_num_blocks, self.kv_indices, self._kv_blocks)
        return partial | dense_blocks(
            self._full_kv_num_blocks, self._full_kv_indices, self._kv_blocks
        )

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Draw which blocks are visible, a picture for each batch and head.

        Args:
            grid_size: the most rows and columns of a picture; -1: one cell per block.
            limit: the most pictures.
        """
        of = "BlockMask.to_string"
        if isinstance(grid_size, (list, tuple)):
            rows, columns = arguments.sequence(of, "grid_size", grid_size, _cells, length=2)
        else:
            rows = columns = _cells(of, "grid_size", grid_size)
        limit = arguments.integer(of, "limit", limit, least=0, most=_MOST_CELLS)
        return picture(self.to_dense(), (rows, columns), limit)

    @property
    def _kv_blocks(self) -> int:
        return -(-self._seq_lengths[1] // self._block_size[1])
