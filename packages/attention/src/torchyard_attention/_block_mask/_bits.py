"""The bits of a block mask's partial blocks, and the mask_mod that they are evaluated from."""

from __future__ import annotations

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_attention._block_mask._block_lists import BlockLists
from torchyard_attention._block_mask._lists import checked_lengths
from torchyard_attention._block_mask._recorded import MaskMod, of_first, record_mask
from torchyard_attention._mask_blocks._evaluation import first_slots
from torchyard_attention._mask_blocks._source import stale, versions
from torchyard_attention._ops import _masks
from torchyard_attention.contract import MaskBlocks
from torchyard_attention.fast_path import PathMask

__all__ = ["MaskBits"]


class MaskBits(BlockLists):
    """Lists of blocks with the bits of the partial ones; see :class:`BlockMask`.

    ``mask_mod`` and ``seq_lengths`` can be assigned; the bits are evaluated again when they are
    read next.
    """

    def _set_bits(
        self,
        bits: Tensor,
        first_partial: Tensor,
        mask_mod: MaskMod | None,
        mask_text: str,
        mask_captured: tuple[Tensor, ...],
        mask_versions: tuple[int, ...],
        causal: bool,
        of_first: tuple[bool, bool],
    ) -> None:
        self._bits = bits
        self._first_partial = first_partial
        self._mask_mod = mask_mod
        self._mask_text = mask_text
        self._mask_captured = mask_captured
        self._mask_versions = mask_versions
        self._causal = causal
        self._of_first = of_first
        # Whether the bits are those of another function or other lengths.
        self._outdated = False
        # Whether the mask was made inside of a compiled graph, which holds its program then.
        self._of_graph = torch.compiler.is_compiling()
        # The mask as a call holds it, and as a fast path takes it.
        self._as_blocks: MaskBlocks | None = None
        self._path_mask: PathMask | None = None

    @property
    def seq_lengths(self) -> tuple[int, int]:
        return self._seq_lengths

    @seq_lengths.setter
    def seq_lengths(self, lengths: tuple[int, int]) -> None:
        q_length, kv_length = checked_lengths("BlockMask", lengths)
        rows = self._block_size[0]
        q_blocks = self._kv_num_blocks.shape[2]
        if -(-q_length // rows) != q_blocks or kv_length < 0:
            raise ValueError(
                f"seq_lengths: expected {max(0, q_blocks - 1) * rows + 1} to {q_blocks * rows} "
                f"queries, for {q_blocks} rows of blocks, got {lengths}; take rows with mask[...]"
            )
        self._seq_lengths = (q_length, kv_length)
        self._outdate()

    @property
    def first_partial(self) -> Tensor:
        return self._first_partial

    @property
    def mask_mod(self) -> MaskMod | None:
        return self._mask_mod

    @mask_mod.setter
    def mask_mod(self, mask_mod: MaskMod) -> None:
        arguments.function("BlockMask", "mask_mod", mask_mod)
        self._mask_mod = mask_mod
        self._outdate()

    def _outdate(self) -> None:
        self._outdated = True
        self._causal = False
        self._as_blocks = self._path_mask = None

    @property
    def bits(self) -> Tensor:
        self._update()
        return self._bits

    @property
    def mask_text(self) -> str:
        self._update()
        return self._mask_text

    @property
    def mask_captured(self) -> tuple[Tensor, ...]:
        self._update()
        return self._mask_captured

    @property
    def mask_versions(self) -> tuple[int, ...]:
        self._update()
        return self._mask_versions

    @property
    def causal(self) -> bool:
        return self._causal

    @property
    def of_first(self) -> tuple[bool, bool]:
        self._update()
        return self._of_first

    def _update(self) -> None:
        """Evaluate the bits, where mask_mod or seq_lengths was assigned since."""
        if not self._outdated:
            return
        if self._mask_mod is None:
            raise ValueError(
                f"BlockMask: seq_lengths was set to {self._seq_lengths}, and the mask, a slice, "
                f"has no mask_mod to evaluate there; set mask_mod too"
            )
        text, captured = record_mask(self._mask_mod, self._kv_num_blocks.device)
        self._evaluate(text, tuple(captured))
        self._of_first = of_first(text, self._kv_num_blocks)
        self._outdated = False

    def _evaluate(self, text: str, captured: tuple[Tensor, ...]) -> None:
        self._bits = _masks.partial_bits(
            text, captured, self._lists(), self._seq_lengths, self._block_size
        )
        self._first_partial = first_slots(self._kv_num_blocks)
        self._mask_text = text
        self._mask_captured = captured
        self._mask_versions = versions(captured)
        self._as_blocks = self._path_mask = None

    def _refresh(self) -> None:
        """Evaluate the bits also where a captured tensor was changed in place."""
        self._update()
        if torch.compiler.is_compiling():
            return
        if self._mask_text and stale(self._mask_captured, self._mask_versions):
            self._evaluate(self._mask_text, self._mask_captured)

    def block_tensors(self) -> list[Tensor]:
        """Return the six tensors of ``torchyard_attention.contract.MaskBlocks``, in its order.

        Lists of full blocks are among them, empty, also where the fields are None.
        """
        bits = self.bits
        return [*self._lists(), bits, self._first_partial]

    def _tensors(self) -> list[Tensor]:
        """Return the six tensors of a mask as blocks, then the captured ones."""
        tensors = self.block_tensors()
        return [*tensors, *self._mask_captured]
