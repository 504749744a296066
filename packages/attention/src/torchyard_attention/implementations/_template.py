"""A call as torch's templates take it: tensors in a row, and functions of scalars over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from torchyard_attention._mods._evaluate import scalar_function
from torchyard_attention._mods._trace import CAUSAL, MASK_INPUTS, SCORE_INPUTS
from torchyard_attention.contract import AttentionCall, MaskBlocks
from torchyard_programs import Input, Traits, UnsupportedProgramError, build, parse, program_graph

__all__ = ["Template", "template_of"]

# Blocks of a call without a mask: torch's template without blocks holds Sq x Sk scores per thread.
_BLOCK: Final = 128

_Function = Callable[..., Any]
_Meta = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


@dataclass(frozen=True, slots=True)
class Template:
    """All of a call that a template's code depends on.

    Attributes:
        tensors: shape, strides, dtype and device of query, key, value, of what the score_mod
            captures, of the mask's four lists, and of what its function reads.
        score: the score_mod's program; empty without one.
        captured: how many tensors it captures.
        wide: whether the score_mod's indices must be int64, where torch's templates have int32.
        mask: the mask's program; empty where its bits are read.
        wide_mask: as wide, of the mask's program.
        masked: whether there is a mask.
        block_size: rows and keys of a block.
        scale: multiplies the raw scores.
    """

    tensors: tuple[_Meta, ...]
    score: str
    captured: int
    wide: bool
    mask: str
    wide_mask: bool
    masked: bool
    block_size: tuple[int, int]
    scale: float

    @property
    def first_list(self) -> int:
        """Where the mask's lists begin among the tensors; its function's tensors follow them."""
        return 3 + self.captured

    def score_mod(self) -> _Function | None:
        """Return the score_mod as a function of (score, b, h, q, k, *captured)."""
        if not self.score:
            return None
        modify = scalar_function(self.score)
        return _widened(modify, 1) if self.wide else modify

    def mask_mod(self) -> _Function | None:
        """Return the mask as a function of (b, h, q, k, *tensors)."""
        if self.mask:
            visible = build(parse(self.mask), MASK_INPUTS)
            return _widened(visible, 0) if self.wide_mask else visible
        return self._bits() if self.masked else None

    def _bits(self) -> _Function:
        rows, keys = self.block_size
        shared_batch, shared_head = (size == 1 for size in self.tensors[self.first_list][0][:2])

        def visible(
            b: Tensor, h: Tensor, q: Tensor, k: Tensor, slots: Tensor, bits: Tensor
        ) -> Tensor:
            row, column = q // rows, k // keys
            place = (row, column) if shared_head else (h, row, column)
            slot = slots[place if shared_batch else (b, *place)]
            byte = bits[slot, q - row * rows, (k - column * keys) // 8]
            return ((byte >> ((k - column * keys) % 8)) & 1) != 0

        return visible

    def block_mask(
        self, lists: tuple[Tensor, ...], mask_mod: _Function | None, *, by_keys: bool
    ) -> BlockMask:
        """Return torch's mask of the four lists; ``by_keys`` for lists of rows by keys too."""
        counts, partial, full_counts, full = lists
        return BlockMask.from_kv_blocks(
            counts,
            partial,
            full_counts,
            full,
            BLOCK_SIZE=self.block_size,
            mask_mod=mask_mod,
            seq_lengths=(self.tensors[0][0][2], self.tensors[1][0][2]),
            compute_q_blocks=by_keys,
        )


def template_of(call: AttentionCall) -> tuple[Template, tuple[Tensor, ...]]:
    """Return what the code for a call depends on, and the tensors that the code is given."""
    captured = call.score_mod.captured if call.score_mod is not None else ()
    program, wide_mask, read = _mask_program(call)
    if call.mask is None:
        lists = _whole(call.query, call.key)
    else:
        lists = _lists(call.mask, call.key.shape[2])
        read = read if program else _slots(call.mask, lists)
    tensors = (call.query, call.key, call.value, *captured, *lists, *read)
    tensors = tuple(tensor.detach() for tensor in tensors)
    text = call.score_mod.text if call.score_mod is not None else ""
    template = Template(
        tensors=tuple((t.shape, t.stride(), t.dtype, t.device) for t in tensors),
        score=text,
        captured=len(captured),
        wide=bool(text) and not _limits(text, SCORE_INPUTS, _traits(captured), _ranges(call))[1],
        mask=program,
        wide_mask=wide_mask,
        masked=call.mask is not None,
        block_size=(_BLOCK, _BLOCK) if call.mask is None else call.mask.block_size,
        scale=call.scale,
    )
    return template, tensors


def _mask_program(call: AttentionCall) -> tuple[str, bool, tuple[Tensor, ...]]:
    """Return a mask's program, whether its indices must be int64, and what it captures.

    Empty where a compiler may round what the bits were evaluated from in another way.
    """
    mask = call.mask
    if mask is None or (mask.source is None and not mask.causal):
        return "", False, ()
    if mask.source is None or mask.causal:
        return min(CAUSAL), False, ()
    text, captured = mask.source.text, mask.source.captured
    exact, narrow = _limits(text, MASK_INPUTS, _traits(captured), _ranges(call))
    return (text, not narrow, captured) if exact else ("", False, ())


@lru_cache(maxsize=1024)
def _limits(
    text: str,
    names: tuple[str, ...],
    captured: Traits,
    ranges: tuple[tuple[str, int, int], ...],
) -> tuple[bool, bool]:
    """Return whether a program gives the same however it is rounded, and with int32 indices."""
    inputs = tuple(Input(name, torch.float32 if name == "s" else torch.int64, 0) for name in names)
    try:
        graph = program_graph(text, inputs, captured, ranges=ranges).graph
    except UnsupportedProgramError:
        return False, False
    needed = graph.needed((graph.result,))
    return not graph.rounded(), all(graph.nodes[n].dtype != "int64" for n in needed)


def _widened(function: _Function, first: int) -> _Function:
    """Return a function with its four indices, of which one is the first, as int64."""

    def wide(*given: Tensor) -> Any:
        indices = (index.to(torch.int64) for index in given[first : first + 4])
        return function(*given[:first], *indices, *given[first + 4 :])

    return wide


def _ranges(call: AttentionCall) -> tuple[tuple[str, int, int], ...]:
    batch, heads, rows, _ = call.query.shape
    counts = {"b": batch, "h": heads, "q": rows, "k": call.key.shape[2]}
    return tuple((name, 0, max(count - 1, 0)) for name, count in counts.items())


def _traits(captured: tuple[Tensor, ...]) -> Traits:
    return tuple((tensor.dtype, tensor.ndim) for tensor in captured)


def _whole(query: Tensor, key: Tensor) -> tuple[Tensor, ...]:
    """Return the lists of a call without a mask: no partial blocks, and all that are full."""
    shape = (1, 1, -(-query.shape[2] // _BLOCK), -(-key.shape[2] // _BLOCK))
    none = torch.zeros(shape[:3], dtype=torch.int32, device=query.device)
    every = torch.arange(shape[3], dtype=torch.int32, device=query.device)
    every = every.expand(shape).contiguous()
    return none, every, none + shape[3], every


def _lists(mask: MaskBlocks, kv_length: int) -> tuple[Tensor, ...]:
    """Return a mask's lists. torch reads the number of key blocks off their width."""
    kv_blocks = -(-kv_length // mask.block_size[1])
    partial, full = (
        torch.nn.functional.pad(indices, (0, kv_blocks - indices.shape[3]))
        if indices.shape[3] != kv_blocks
        else indices
        for indices in (mask.kv_indices, mask.full_kv_indices)
    )
    return mask.kv_num_blocks, partial, mask.full_kv_num_blocks, full


def _slots(mask: MaskBlocks, lists: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return each block's slot in the bits, without dimensions that are shared, and the bits.

    A number among indices would become a tensor, which torch does not trace in a mask.
    """
    _, partial, _, full = lists
    place = torch.arange(partial.shape[3], device=partial.device)
    listed = place < mask.kv_num_blocks.unsqueeze(-1)
    count = len(mask.bits)
    # Two slots more, for blocks that are hidden or visible whole, and a rounded count, so that
    # masks with other numbers of partial blocks run the same code.
    rounded = 1 << (count + 1).bit_length()
    bits = mask.bits.new_zeros((rounded, *mask.bits.shape[1:]))
    bits[:count] = mask.bits
    bits[rounded - 1] = 255
    slots = torch.full_like(partial, rounded - 2)
    whole = place < mask.full_kv_num_blocks.unsqueeze(-1)
    for indices, seen, values in (
        (partial, listed, mask.first_partial.unsqueeze(-1) + place),
        (full, whole, torch.full_like(place, rounded - 1)),
    ):
        at = seen.nonzero(as_tuple=True)
        slots[(*at[:3], indices[at].long())] = values.expand_as(indices)[at].to(slots.dtype)
    shared = [place for place in (0, 1) if slots.shape[place] == 1]
    return slots.squeeze(shared), bits
