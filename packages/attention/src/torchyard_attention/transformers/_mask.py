"""The mask function: the mask of a step from the arguments that a model of transformers passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_attention import masks
from torchyard_attention._block_mask import DEFAULT_BLOCK_SIZE, BlockMask, create_block_mask
from torchyard_attention._mask_blocks._evaluation import first_slots, ordered, pack_bits
from torchyard_attention.masks._combination import and_masks, create_mask
from torchyard_attention.transformers._errors import UnsupportedArgumentError
from torchyard_attention.transformers._patterns import Pattern, read
from torchyard_attention.transformers._prepared import PreparedMask
from torchyard_attention.transformers._structures import Band, KeysBetween, KeysListed, Place

__all__ = ["band_blocks", "check_asked", "prepare"]

# What transformers says besides, for other attentions' masks: whether nothing may stand for a mask,
# in which dtype, over how long a window, and by which means a function of indices is to be called.
_FOR_OTHERS: Final = frozenset(
    "allow_is_bidirectional_skip allow_is_causal_skip allow_torch_fix config dtype local_size "
    "use_vmap".split()
)

# Sq x Sk of the largest mask that is kept: 65,536 squared takes about 2 MiB.
_MOST_KEPT: Final = 1 << 32

# Types of models that leave a finished block mask out of what they hand to attention.
_DROPPED_BY: Final = frozenset({"doge"})


def prepare(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> PreparedMask:
    """Return the mask of a step, in time that does not grow with Sq x Sk where it is structured.

    One query with nothing but a band to its mask, which is any step of decoding without padding,
    gets a range of keys and no mask.

    Args:
        batch_size: B.
        q_length, kv_length: Sq and Sk.
        q_offset, kv_offset: the positions of the first query and of the first key.
        mask_function: ``(b, h, q, k) -> bool`` on positions; None: causal.
        attention_mask: bool [B, positions]: False at padding. Positions beyond are padding.
        device: of the mask.
        kwargs: what other attentions' masks want to know.

    Raises:
        UnsupportedArgumentError: transformers says something else of the mask, or the model is one
            that would leave it out.
        ProgramError: mask_function does something that cannot be recorded.
    """
    check_asked(kwargs)
    sizes = (batch_size, q_length, kv_length)
    where = torch.device(device)
    if torch.compiler.is_compiling():
        return _recorded(sizes, q_offset, kv_offset, mask_function, attention_mask, where)
    pattern = Pattern(Band(high=1)) if mask_function is None else read(mask_function)
    place = Place(int(q_offset), int(kv_offset), q_length, kv_length)
    start, stop = pattern.band.moved(place.shift).reach(q_length, kv_length)
    place = place.keys(start, stop)
    listed = _listed(attention_mask, place)
    return PreparedMask(
        sizes, start, stop, _blocks(pattern, place, listed, batch_size, where), pattern.packed
    )


def check_asked(kwargs: dict[str, Any]) -> None:
    """Check the arguments for a mask besides its function and its sizes.

    Raises:
        UnsupportedArgumentError: an argument is unknown, or the model would leave the mask out.
    """
    unknown = sorted(
        name for name, value in kwargs.items() if value is not None and name not in _FOR_OTHERS
    )
    if unknown:
        raise UnsupportedArgumentError(
            f"{unknown[0]}: this transformers passes it to mask functions, and torchyard does not "
            'know what it means; load the model with attn_implementation="sdpa" or "eager"'
        )
    model_type = getattr(kwargs.get("config"), "model_type", None)
    if model_type in _DROPPED_BY:
        raise UnsupportedArgumentError(
            f"attention_mask: models of type {model_type} leave a block mask out and attend to "
            'everything; load the model with attn_implementation="sdpa" or "eager"'
        )


def band_blocks(
    q_length: int, kv_length: int, low: int | None, high: int | None, device: torch.device
) -> BlockMask | None:
    """Return the mask that shows query q the keys from q + low to below q + high; None for all.

    Cached for the next step or the next batch of the same lengths, except very long ones.
    """
    band = Band(low, high).within(q_length, kv_length)
    if band == Band():
        return None
    make = _cached_mask if q_length * kv_length <= _MOST_KEPT else _cached_mask.__wrapped__
    return make(q_length, kv_length, band, device)


@lru_cache(maxsize=8)
def _cached_mask(q_length: int, kv_length: int, band: Band, device: torch.device) -> BlockMask:
    exact = masks.causal if band == Band(high=1) else band
    # A mask made under inference_mode could not be used in training later.
    with torch.inference_mode(False), torch.no_grad():
        return create_block_mask(exact, None, None, q_length, kv_length, device=device)


def _blocks(
    pattern: Pattern, place: Place, listed: Tensor | None, batch: int, device: torch.device
) -> BlockMask | None:
    q_length, kv_length = place.q_length, place.kv_length
    band = pattern.band.moved(place.shift).within(q_length, kv_length)
    if not pattern.rest and listed is None:
        return band_blocks(q_length, kv_length, band.low, band.high, device)
    if q_length > 1:
        parts = [] if listed is None else [_padding(listed)]
        mask_mod = and_masks(pattern.at(place), *parts) if pattern.rest else and_masks(band, *parts)
        made = create_block_mask(mask_mod, batch, None, q_length, kv_length, device=device)
        return _forgetful(made)
    # A range of keys has no band left to one query.
    visible = listed
    if pattern.rest:
        visible = create_mask(pattern.at(place), batch, None, 1, kv_length, device)[:, 0, 0]
        visible = visible if listed is None else visible & listed
    assert visible is not None, "a band without padding has returned"
    return _of_one_query(visible)


def _listed(attention_mask: Tensor | None, place: Place) -> Tensor | None:
    """Return which keys are not padding, bool [B, Sk]; None if all are real."""
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2:
        raise UnsupportedArgumentError(
            f"attention_mask: expected [B, positions] or a finished mask of 4 dimensions, got "
            f"{list(attention_mask.shape)}"
        )
    listed = attention_mask[:, place.kv_offset : place.kv_offset + place.kv_length].bool()
    missing = place.kv_length - listed.shape[1]
    if missing:
        listed = torch.nn.functional.pad(listed, (0, missing))
    return None if bool(listed.all()) else listed


def _padding(listed: Tensor) -> KeysBetween | KeysListed:
    """Return the mask of the keys that are listed: a range per batch where they are adjacent."""
    count = listed.sum(dim=1)
    flags = listed.to(torch.uint8)
    first = flags.argmax(dim=1)
    end = torch.where(count > 0, listed.shape[1] - flags.flip(1).argmax(dim=1), 0)
    between = KeysBetween(first, end)
    together = (end - first).clamp(min=0) == count
    return between if bool(together.all()) else KeysListed(listed, between)


def _of_one_query(visible: Tensor) -> BlockMask | None:
    """Return the mask of one query per batch that sees the keys of bool [B, Sk]; None for all."""
    batch, kv_length = visible.shape
    if bool(visible.all()):
        return None
    keys = DEFAULT_BLOCK_SIZE
    tiles = torch.nn.functional.pad(visible, (0, -kv_length % keys)).view(batch, 1, 1, -1, keys)
    count = tiles.sum(dim=-1)
    full = count == keys
    partial = (count > 0) & ~full
    kv_num_blocks, kv_indices = ordered(partial)
    full_kv_num_blocks, full_kv_indices = ordered(full)
    return BlockMask(
        seq_lengths=(1, kv_length),
        kv_num_blocks=kv_num_blocks,
        kv_indices=kv_indices,
        full_kv_num_blocks=full_kv_num_blocks,
        full_kv_indices=full_kv_indices,
        bits=pack_bits(tiles[partial][:, None]),
        first_partial=first_slots(kv_num_blocks),
        BLOCK_SIZE=(1, keys),
    )


def _forgetful(mask: BlockMask) -> BlockMask:
    """Return a mask without the tensors that it was made from: it is used for one step.

    Otherwise every layer would check whether they were changed, and recompute the bits where that
    is unknown, as under inference_mode.
    """
    return mask.without_program()


def _recorded(
    sizes: tuple[int, int, int],
    q_offset: int | Tensor,
    kv_offset: int,
    mask_function: Callable[..., Any] | None,
    attention_mask: Tensor | None,
    device: torch.device,
) -> PreparedMask:
    """Return the mask inside of a compiled graph, where nothing of its data can be asked."""
    batch, q_length, kv_length = sizes
    listed = None
    if attention_mask is not None:
        listed = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
        listed = torch.nn.functional.pad(listed, (0, kv_length - listed.shape[1]))

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Any:
        query, key = q_idx + q_offset, kv_idx + kv_offset
        visible = key <= query if mask_function is None else mask_function(b, h, query, key)
        return visible if listed is None else visible & listed[b, kv_idx]

    blocks = create_block_mask(mask_mod, batch, None, q_length, kv_length, device=device)
    return PreparedMask(sizes, 0, kv_length, blocks, packed=False)
