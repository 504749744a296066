"""BlockMask: which blocks of queries and keys are visible, and the bits of the partial ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.utils import _pytree as pytree

from torchyard_attention import _ops
from torchyard_attention._arguments import versions
from torchyard_attention._mask_blocks import first_slots, ordered
from torchyard_attention._program import CAUSAL
from torchyard_attention._structure import visibility_of
from torchyard_attention._structured_blocks import blocks_within
from torchyard_attention._trace import MASK_INPUTS, trace
from torchyard_attention.contract import MaskBlocks

MaskMod = Callable[[Any, Any, Any, Any], Any]
DEFAULT_BLOCK_SIZE: Final = 128


@dataclass(frozen=True, eq=False)
class BlockMask:
    """A block-sparse mask; the fields that torch.nn.attention.flex_attention.BlockMask has, and the
    bits of its partial blocks.

    With Bm in {1, B}, Hm in {1, Hq}, BQ rows and BK keys per block, Qb and Kb blocks:

    Attributes:
        seq_lengths: (Sq, Sk).
        kv_num_blocks, kv_indices: int32 [Bm, Hm, Qb] and [Bm, Hm, Qb, Kp]: partial blocks. Kp is at
            least the longest row's count; torch's lists are Kb wide.
        full_kv_num_blocks, full_kv_indices: likewise, with a width of their own: blocks that are
            visible whole.
        bits: uint8 [N, BQ, ceil(BK / 8)], see ``torchyard_attention.contract.MaskBlocks``.
        first_partial: int64 [Bm, Hm, Qb].
        BLOCK_SIZE: (BQ, BK).
        mask_mod: the function that it was made from, for the reader; None where there is none.
        mask_text: its program.
        mask_captured: the tensors that the program captures.
        mask_versions: their versions when the bits were made, so that a tensor that was changed
            in place since then is noticed.
        causal: whether the mask is exactly ``q >= k``.
    """

    seq_lengths: tuple[int, int]
    kv_num_blocks: Tensor
    kv_indices: Tensor
    full_kv_num_blocks: Tensor
    full_kv_indices: Tensor
    bits: Tensor
    first_partial: Tensor
    BLOCK_SIZE: tuple[int, int]
    mask_mod: MaskMod | None = None
    mask_text: str = ""
    mask_captured: tuple[Tensor, ...] = ()
    mask_versions: tuple[int, ...] = ()
    causal: bool = field(default=False)

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
    ) -> BlockMask:
        """Build a mask from lists of blocks, as torch's method of the same name.

        A pair is visible if its block is listed as full, or listed as partial and allowed by
        ``mask_mod`` (everything, without one). Lists may be narrower than Kb where ``seq_lengths``
        is given.

        Raises:
            ValueError: shapes or dtypes do not fit; names the argument.
        """
        block_size = _pair(BLOCK_SIZE)
        _check_lists("kv", kv_num_blocks, kv_indices)
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise ValueError(
                "full_kv_num_blocks, full_kv_indices: expected both or neither, got one"
            )
        if full_kv_num_blocks is None or full_kv_indices is None:
            full_kv_num_blocks = torch.zeros_like(kv_num_blocks)
            full_kv_indices = torch.zeros_like(kv_indices)
        _check_lists("full_kv", full_kv_num_blocks, full_kv_indices)
        q_blocks, kv_blocks = kv_indices.shape[-2:]
        if seq_lengths is None:
            seq_lengths = (q_blocks * block_size[0], kv_blocks * block_size[1])
        expected = tuple(-(-n // size) for n, size in zip(seq_lengths, block_size, strict=True))
        if q_blocks != expected[0] or max(kv_blocks, full_kv_indices.shape[-1]) > expected[1]:
            raise ValueError(
                f"kv_indices: expected {list(expected)} blocks for lengths {list(seq_lengths)} and "
                f"BLOCK_SIZE {list(block_size)}, got {[q_blocks, kv_blocks]}"
            )
        lists = (
            kv_num_blocks.to(torch.int32).contiguous(),
            kv_indices.to(torch.int32).contiguous(),
            full_kv_num_blocks.to(torch.int32).contiguous(),
            full_kv_indices.to(torch.int32).contiguous(),
        )
        text, captured = _traced(mask_mod or _everything, kv_num_blocks.device)
        bits = _ops.partial_bits(text, captured, lists, seq_lengths, block_size)
        return cls(
            seq_lengths=seq_lengths,
            kv_num_blocks=lists[0],
            kv_indices=lists[1],
            full_kv_num_blocks=lists[2],
            full_kv_indices=lists[3],
            bits=bits,
            first_partial=first_slots(lists[0]),
            BLOCK_SIZE=block_size,
            mask_mod=mask_mod,
            mask_text=text,
            mask_captured=tuple(captured),
            mask_versions=versions(captured),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """(Bm, Hm, Sq, Sk)."""
        return (*self.kv_num_blocks.shape[:2], *self.seq_lengths)

    def numel(self) -> int:
        """Return how many (query, key) pairs the mask speaks of."""
        batch, heads, q_length, kv_length = self.shape
        return batch * heads * q_length * kv_length

    def sparsity(self) -> float:
        """Return the percentage of blocks that are hidden, 0 to 100."""
        blocks = self.kv_num_blocks.numel() * self._kv_blocks
        if blocks == 0:
            return 0.0
        visible = int(self.kv_num_blocks.sum()) + int(self.full_kv_num_blocks.sum())
        return 100.0 * (1.0 - visible / blocks)

    def to_dense(self) -> Tensor:
        """Return which blocks are visible at least in part: int32 [Bm, Hm, Qb, Kb] of 0 and 1."""
        partial = _dense(self.kv_num_blocks, self.kv_indices, self._kv_blocks)
        full = _dense(self.full_kv_num_blocks, self.full_kv_indices, self._kv_blocks)
        return (partial | full).to(torch.int32)

    @property
    def _kv_blocks(self) -> int:
        return -(-self.seq_lengths[1] // self.BLOCK_SIZE[1])

    def to(self, device: torch.device | str) -> BlockMask:
        """Return the mask with its tensors on another device."""
        tensors, context = _flatten(self)
        return _unflatten([tensor.to(device) for tensor in tensors], context, self.mask_mod)

    def __getitem__(
        self, index: int | slice | Tensor | tuple[int | slice | Tensor, ...]
    ) -> BlockMask:
        """Return the mask of some batches, heads and rows of blocks; dimensions stay.

        Unlike torch's, the result can be used: the bits of its blocks come along. Only whole rows
        of blocks can be taken, from the first to the last of them in order.
        """
        picks = index if isinstance(index, tuple) else (index,)
        padded = (*picks, slice(None), slice(None), slice(None))[:3]
        place = tuple(
            slice(item, item + 1 or None) if isinstance(item, int) else item for item in padded
        )
        q_blocks = torch.arange(self.kv_num_blocks.shape[2])[place[2]].tolist()
        rows, (q_length, kv_length) = self.BLOCK_SIZE[0], self.seq_lengths
        heights = [min(rows, q_length - block * rows) for block in q_blocks]
        if any(height < rows for height in heights[:-1]):
            raise ValueError(
                f"BlockMask[...]: the last row of blocks holds fewer than {rows} queries and can "
                f"only be taken last, got rows {q_blocks}"
            )
        return BlockMask(
            seq_lengths=(sum(heights), kv_length),
            kv_num_blocks=self.kv_num_blocks[place].contiguous(),
            kv_indices=self.kv_indices[place].contiguous(),
            full_kv_num_blocks=self.full_kv_num_blocks[place].contiguous(),
            full_kv_indices=self.full_kv_indices[place].contiguous(),
            bits=self.bits,
            first_partial=self.first_partial[place].contiguous(),
            BLOCK_SIZE=self.BLOCK_SIZE,
            causal=self.causal and q_blocks == list(range(len(q_blocks))),
        )

    def part(self, q_blocks: Sequence[int], kv_blocks: Sequence[int]) -> BlockMask:
        """Return the mask of some rows and columns of blocks, as they follow one another.

        The result speaks of a sequence that holds those blocks alone: its query i is the i-th
        query of the listed blocks. It holds bits of its own, those of its partial blocks.

        Args:
            q_blocks, kv_blocks: numbers of blocks, each at most once, in any order. The last block
                of a sequence may be shorter than the others, and can then only be listed last.

        Raises:
            ValueError: a number is out of range or repeated, or a short block is not last.
        """
        lengths = tuple(
            _length_of(name, blocks, length, size)
            for name, blocks, length, size in zip(
                ("q_blocks", "kv_blocks"),
                (q_blocks, kv_blocks),
                self.seq_lengths,
                self.BLOCK_SIZE,
                strict=True,
            )
        )
        device = self.kv_num_blocks.device
        rows = torch.tensor(list(q_blocks), dtype=torch.int64, device=device)
        columns = torch.tensor(list(kv_blocks), dtype=torch.int64, device=device)
        slots = self._slots()[:, :, rows][..., columns]
        partial = slots >= 0
        full = _dense(self.full_kv_num_blocks, self.full_kv_indices, self._kv_blocks)
        kv_num_blocks, kv_indices = ordered(partial)
        full_kv_num_blocks, full_kv_indices = ordered(full[:, :, rows][..., columns])
        return BlockMask(
            seq_lengths=(lengths[0], lengths[1]),
            kv_num_blocks=kv_num_blocks,
            kv_indices=kv_indices,
            full_kv_num_blocks=full_kv_num_blocks,
            full_kv_indices=full_kv_indices,
            bits=self.bits[slots[partial]],
            first_partial=first_slots(kv_num_blocks),
            BLOCK_SIZE=self.BLOCK_SIZE,
            causal=self.causal
            and list(q_blocks) == list(kv_blocks) == sorted(q_blocks)
            and self.BLOCK_SIZE[0] == self.BLOCK_SIZE[1],
        )

    def _slots(self) -> Tensor:
        """Return where in ``bits`` each block lies, -1 for those that are not partial.

        int64 [Bm, Hm, Qb, Kb].
        """
        width = self.kv_indices.shape[-1]
        place = torch.arange(width, device=self.kv_indices.device)
        listed = place < self.kv_num_blocks[..., None]
        targets = torch.where(listed, self.kv_indices, self._kv_blocks).long()
        slots = self.first_partial.new_full((*self.kv_num_blocks.shape, self._kv_blocks + 1), -1)
        slots.scatter_(-1, targets, self.first_partial[..., None] + place)
        return slots[..., : self._kv_blocks]

    def __repr__(self) -> str:
        return (
            f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, "
            f"BLOCK_SIZE={self.BLOCK_SIZE})"
        )


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
) -> BlockMask:
    """Build a block mask from a function of indices, as torch's function of the same name.

    The function is recorded, not run per pair. A mask that knows its structure (those of
    ``torchyard_attention.masks``, and what and_masks and or_masks make of them) is evaluated only
    in blocks of which its structure is unsure; any other function one stripe of blocks at a time.
    The result is the same. No Sq x Sk mask is ever held, with or without compilation. Inside of
    torch.compile, torch.export and with fake tensors every mask is evaluated by stripes.

    Args:
        mask_mod: ``(b, h, q_idx, kv_idx) -> bool``: whether a query sees a key.
        B: batches that the function tells apart; None: it tells none apart.
        H: query heads likewise.
        Q_LEN, KV_LEN: Sq and Sk.
        device: where the mask lies; None: torch's current accelerator, else cpu.
        BLOCK_SIZE: rows and keys per block.
        _compile: accepted for torch's signature; there is nothing to compile.
        separate_full_blocks: whether wholly visible blocks are listed apart; False lists them as
            partial ones.

    Raises:
        ProgramError: the function does something that cannot be recorded.
        ValueError: a length or a block size is out of range.
    """
    block_size = _pair(BLOCK_SIZE)
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    for name, size in zip(("B", "H", "Q_LEN", "KV_LEN"), sizes, strict=True):
        if size < (1 if name in {"B", "H"} else 0):
            raise ValueError(f"{name}: expected a positive size, got {size}")
    place = torch.device(device) if device is not None else _default_device()
    text, captured = _traced(mask_mod, place)
    blocks = _blocks(mask_mod, text, captured, sizes, block_size, place)
    if not separate_full_blocks:
        return _without_full_blocks(blocks, sizes, block_size, mask_mod)
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
        causal=text in CAUSAL,
    )


def _blocks(
    mask_mod: MaskMod,
    text: str,
    captured: list[Tensor],
    sizes: tuple[int, int, int, int],
    block_size: tuple[int, int],
    device: torch.device,
) -> MaskBlocks:
    if not torch.compiler.is_compiling() and detect_fake_mode() is None:
        with torch.no_grad():
            blocks = blocks_within(
                text, tuple(captured), partial(visibility_of, mask_mod), sizes, block_size, device
            )
        if blocks is not None:
            return blocks
    return _ops.block_mask(text, captured, sizes, block_size, device)


def _without_full_blocks(
    blocks: MaskBlocks, sizes: tuple[int, int, int, int], block_size: tuple[int, int], mod: MaskMod
) -> BlockMask:
    kv_blocks = -(-sizes[3] // block_size[1])
    listed = _dense(blocks.kv_num_blocks, blocks.kv_indices, kv_blocks) | _dense(
        blocks.full_kv_num_blocks, blocks.full_kv_indices, kv_blocks
    )
    counts, indices = ordered(listed)
    return BlockMask.from_kv_blocks(
        counts, indices, BLOCK_SIZE=block_size, mask_mod=mod, seq_lengths=(sizes[2], sizes[3])
    )


def _length_of(name: str, blocks: Sequence[int], length: int, size: int) -> int:
    """Return how many positions the blocks hold."""
    count = -(-length // size)
    if len(set(blocks)) != len(blocks) or any(not 0 <= block < count for block in blocks):
        raise ValueError(f"{name}: expected different blocks of 0 to {count - 1}, got {blocks}")
    heights = [min(size, length - block * size) for block in blocks]
    if any(height < size for height in heights[:-1]):
        raise ValueError(
            f"{name}: the sequence's last block holds fewer than {size} positions and can only be "
            f"listed last, got {blocks}"
        )
    return sum(heights)


def _default_device() -> torch.device:
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _traced(mask_mod: MaskMod, device: torch.device) -> tuple[str, list[Tensor]]:
    return trace(mask_mod, "mask_mod", MASK_INPUTS, torch.float32, device)


def _everything(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> bool:
    return True


def _pair(block_size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (block_size, block_size) if isinstance(block_size, int) else tuple(block_size)
    if len(pair) != 2 or pair[0] < 1 or pair[1] < 1:
        raise ValueError(f"BLOCK_SIZE: expected one or two positive sizes, got {block_size!r}")
    return (pair[0], pair[1])


def _check_lists(name: str, counts: Tensor, indices: Tensor) -> None:
    if counts.ndim != 3 or indices.ndim != 4 or indices.shape[:3] != counts.shape:
        raise ValueError(
            f"{name}_num_blocks, {name}_indices: expected shapes [B, H, Qb] and [B, H, Qb, K], "
            f"got {list(counts.shape)} and {list(indices.shape)}"
        )


def _dense(counts: Tensor, indices: Tensor, kv_blocks: int) -> Tensor:
    listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    # Unlisted places may hold anything; they all write to one place more, which is dropped.
    places = torch.where(listed, indices, kv_blocks).long()
    dense = torch.zeros((*counts.shape, kv_blocks + 1), dtype=torch.bool, device=counts.device)
    return dense.scatter(-1, places, True)[..., :kv_blocks]


_TENSORS: Final = (
    "kv_num_blocks",
    "kv_indices",
    "full_kv_num_blocks",
    "full_kv_indices",
    "bits",
    "first_partial",
)


def _flatten(mask: BlockMask) -> tuple[list[Tensor], Any]:
    tensors = [getattr(mask, name) for name in _TENSORS]
    context = (
        mask.seq_lengths,
        mask.BLOCK_SIZE,
        mask.mask_text,
        mask.mask_versions,
        mask.causal,
    )
    return [*tensors, *mask.mask_captured], context


def _unflatten(leaves: Any, context: Any, mask_mod: MaskMod | None = None) -> BlockMask:
    leaves = list(leaves)
    seq_lengths, block_size, text, versions, causal = context
    captured = tuple(leaves[len(_TENSORS) :])
    tensors = dict(zip(_TENSORS, leaves, strict=False))
    return BlockMask(
        seq_lengths=seq_lengths,
        **tensors,
        BLOCK_SIZE=block_size,
        mask_mod=mask_mod,
        mask_text=text,
        mask_captured=captured,
        mask_versions=versions,
        causal=causal,
    )


# A mask is a tree of tensors to torch.export and to whoever maps over a model's inputs.
pytree.register_pytree_node(
    BlockMask, _flatten, _unflatten, serialized_type_name="torchyard_attention.BlockMask"
)
