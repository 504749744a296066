"""The block mask and the score_mod of some queries and some keys of a sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from torchyard_attention import BlockMask, create_block_mask
from torchyard_context_parallel._sharding import Ranges, length_of, positions_of
from torchyard_context_parallel._torch_compat import version_of

ScoreModFunction = Callable[[Any, Any, Any, Any, Any], Any]
Heads = tuple[int, int]

_masks: Final[WeakKeyDictionary[BlockMask, dict[Any, BlockMask]]] = WeakKeyDictionary()


def mask_of_part(
    mask: BlockMask | None, queries: Ranges, keys: Ranges, heads: Heads
) -> BlockMask | None:
    """Return the mask between some queries and some keys, for some heads; kept for the next step.

    Args:
        mask: the whole sequence's.
        queries, keys: positions, which the part holds one after the other.
        heads: [start, stop) of the query heads.
    """
    if mask is None:
        return None
    kept = _masks.setdefault(mask, {})
    # mask_mod and seq_lengths can be assigned.
    place = (queries, keys, heads, mask.seq_lengths, mask.mask_mod)
    if place not in kept:
        kept[place] = _part(mask, queries, keys, heads)
    return kept[place]


def check_unchanged(mask: BlockMask | None) -> None:
    """Check that a mask is still that of the tensors that it was made from.

    Raises:
        ValueError: a tensor that it captures was changed in place since it was made.
    """
    if mask is not None and any(
        version_of(tensor) != version
        for tensor, version in zip(mask.mask_captured, mask.mask_versions, strict=False)
        if not tensor.is_inference()
    ):
        raise ValueError(
            "block_mask: a tensor that its mask_mod captures was changed in place since the mask "
            "was made; make the mask again with create_block_mask"
        )


def check_parts(mask: BlockMask | None, queries: Sequence[Ranges], keys: Sequence[Ranges]) -> None:
    """Check that the mask of any part can be made; alike on every rank, before anything is sent.

    Args:
        mask: the whole sequence's.
        queries, keys: each rank's.

    Raises:
        ValueError: ranges do not lie along the mask's blocks, and it has no function that could be
            evaluated again.
    """
    if mask is None or mask.mask_mod is not None:
        return
    for what, parts, size, length in zip(
        ("queries", "keys"), (queries, keys), mask.BLOCK_SIZE, mask.seq_lengths, strict=True
    ):
        for ranges in parts:
            if _blocks(ranges, size, length) is None:
                raise ValueError(
                    f"block_mask: expected {what} in ranges along its blocks of {size}, or a mask "
                    f"that knows its mask_mod, got {ranges}; give the sharding multiple={size}"
                )


def cuts_blocks(mask: BlockMask | None, queries: Sequence[Ranges], keys: Sequence[Ranges]) -> bool:
    """Return whether the mask_mod is evaluated for some part; alike on every rank."""
    if mask is None or mask.mask_mod is None:
        return False
    sides = zip((queries, keys), mask.BLOCK_SIZE, mask.seq_lengths, strict=True)
    return any(
        _blocks(ranges, size, length) is None for parts, size, length in sides for ranges in parts
    )


def _part(mask: BlockMask, queries: Ranges, keys: Ranges, heads: Heads) -> BlockMask:
    mask_heads = mask[:, heads[0] : heads[1]] if mask.shape[1] > 1 else mask
    sides = zip((queries, keys), mask.BLOCK_SIZE, mask.seq_lengths, strict=True)
    blocks = [_blocks(ranges, size, length) for ranges, size, length in sides]
    if blocks[0] is not None and blocks[1] is not None:
        return mask_heads.part(blocks[0], blocks[1])
    mod = mask.mask_mod
    assert mod is not None, "check_parts comes first"
    device = mask.bits.device
    batch, head_count = mask.shape[0], mask_heads.shape[1]
    q_index, k_index, h_index = _indices(queries, keys, heads if head_count > 1 else (0, 1), device)
    return create_block_mask(
        lambda b, h, q, k: mod(b, h_index(h), q_index(q), k_index(k)),
        batch if batch > 1 else None,
        head_count if head_count > 1 else None,
        length_of(queries),
        length_of(keys),
        device,
        mask.BLOCK_SIZE,
    )


def _blocks(ranges: Ranges, size: int, length: int) -> list[int] | None:
    """Return the blocks that ranges are made of; None where they cut one."""
    blocks: list[int] = []
    for start, stop in ranges:
        if start % size or (stop % size and stop != length):
            return None
        blocks += range(start // size, -(-stop // size))
    return blocks


def sees(mask: BlockMask | None, queries: Ranges, keys: Ranges) -> bool:
    """Return whether any of some queries may see any of some keys, as far as blocks tell.

    The same on every rank that has the same mask.
    """
    if not queries or not keys:
        return False
    if mask is None:
        return True
    visible = _visible_blocks(mask)
    return any(
        bool(visible[_span(q, mask.BLOCK_SIZE[0]), _span(k, mask.BLOCK_SIZE[1])].any())
        for q in queries
        for k in keys
    )


def digest(mask: BlockMask) -> str:
    """Return a short text that is equal for equal masks, on any rank."""
    if mask not in _digests:
        tensors = (mask.to_dense(), mask.bits)
        hashed = hashlib.blake2b(digest_size=8)
        for tensor in tensors:
            hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        _digests[mask] = hashed.hexdigest()
    function = "" if mask.mask_mod is None else ", of a mask_mod"
    return f"{list(mask.shape)} in blocks of {mask.BLOCK_SIZE}{function}, digest {_digests[mask]}"


_digests: Final[WeakKeyDictionary[BlockMask, str]] = WeakKeyDictionary()
_visible: Final[WeakKeyDictionary[BlockMask, Tensor]] = WeakKeyDictionary()


def _visible_blocks(mask: BlockMask) -> Tensor:
    """Return whether any batch and head sees each block: bool [Qb, Kb] on the CPU."""
    if mask not in _visible:
        _visible[mask] = (mask.to_dense() > 0).any(dim=0).any(dim=0).cpu()
    return _visible[mask]


def _span(ranges: tuple[int, int], size: int) -> slice:
    return slice(ranges[0] // size, -(-ranges[1] // size))


def score_mod_of_part(
    score_mod: ScoreModFunction | None,
    queries: Ranges,
    keys: Ranges,
    heads: Heads,
    device: torch.device,
) -> ScoreModFunction | None:
    """Return a score_mod on a part's own indices; the program is the same for every part.

    Args:
        score_mod: on indices of the whole sequence and of all heads.
        queries, keys, heads: as in :func:`mask_of_part`.
        device: where the call's tensors lie.
    """
    if score_mod is None:
        return None
    q_index, k_index, h_index = _indices(queries, keys, heads, device)
    return lambda score, b, h, q, k: score_mod(score, b, h_index(h), q_index(q), k_index(k))


def _indices(
    queries: Ranges, keys: Ranges, heads: Heads, device: torch.device
) -> tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """Return functions from a part's indices of queries, keys and heads to the whole's."""
    return (
        _index(queries, device),
        _index(keys, device),
        _index((heads,), device),
    )


def _index(ranges: Ranges, device: torch.device) -> Callable[[Any], Any]:
    # A sum stays affine, which kernels read faster than a table. The start is a tensor, because a
    # number would make each part a program of its own.
    if len(ranges) == 1:
        if ranges[0][0] == 0:
            return lambda index: index
        start = torch.tensor(ranges[0][0], device=device)
        return lambda index: index + start
    table = positions_of(ranges, device)
    return lambda index: table[index]
