"""The mask function and the attention function that models get inside of a context."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import uncompiled
from torchyard_attention import AuxOutput, BlockMask
from torchyard_attention.transformers.parallel import (
    MaskKind,
    PreparedMask,
    UnsupportedArgumentError,
    attention,
    check_asked,
    mask_kind,
    prepare,
)
from torchyard_context_parallel._agreement import agree
from torchyard_context_parallel._shards import unshard
from torchyard_context_parallel._spread import Spread

Function = Callable[..., Any]

_REMEDY: Final = (
    'load the model with attn_implementation="sdpa", or register torchyard\'s attention'
)


class SpreadMask(PreparedMask):
    """A mask over the whole sequence, as the layers of one rank hand it on.

    Attributes:
        spread: over which ranks.
        whole: over all positions; None: every query sees every key.
    """

    def __init__(
        self, spread: Spread, sizes: tuple[int, int, int], whole: BlockMask | None, packed: bool
    ) -> None:
        super().__init__(sizes, 0, sizes[2], None, packed)
        self.spread = spread
        self.whole = whole

    def to(self, device: torch.device | str, *args: Any, **kwargs: Any) -> SpreadMask:
        """Return the mask on another device."""
        whole = None if self.whole is None else self.whole.to(device)
        return SpreadMask(self.spread, self.sizes, whole, self.packed)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_mod: Function | None = None,
        block_mask: BlockMask | None = None,
        scale: float | None = None,
        **given: Any,
    ) -> Any:
        """Compute ``flex_attention`` of this rank's queries over the whole sequence."""
        wants_lse = given.pop("return_aux", None) is not None
        given.pop("enable_gqa", None)
        for name, wanted in given.items():
            if wanted:
                raise UnsupportedArgumentError(
                    f"{name}: expected none inside context_parallel, got {wanted!r}"
                )
        found = self.spread.attend(
            query,
            key,
            value,
            mask=self.whole,
            score_mod=score_mod,
            scale=scale,
            return_lse=wants_lse,
        )
        return (found[0], AuxOutput(lse=found[1])) if wants_lse else found


@uncompiled("ranks agree in it")
def spread_mask(
    spread: Spread,
    name: str,
    before: Function,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Function | None = None,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> SpreadMask:
    """Return the mask of a step over the whole sequence, from what the ranks' models say of it.

    Args:
        spread: over which ranks.
        name, before: the attention that the model was loaded with, and its own mask function.
        batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, device:
            what transformers passes to a mask function for this rank's part.
        kwargs: what other attentions' masks want to know.
    """
    where = torch.device(device)
    kind = MaskKind()
    padded = False
    fields: dict[str, object] = {}
    refusal: Exception | None = None
    try:
        if name != "sdpa" and before is not prepare:
            raise UnsupportedArgumentError(
                f"attn_implementation: {name!r} cannot be spread over ranks; {_REMEDY}"
            )
        check_asked(kwargs)
        kind = mask_kind(mask_function)
        _check_step(spread, kind, q_length, kv_length, int(q_offset), attention_mask)
        padded = attention_mask is not None and not bool(attention_mask.all())
        fields = {
            "kind of mask": f"keys from {kind.low} to {kind.high}, chunks of {kind.chunk}",
            "batch": batch_size,
            "attention_mask": "none" if attention_mask is None else "given",
            "sharding": spread.sharding.text,
            "position_ids of the whole": spread.text,
        }
    except Exception as error:
        refusal = error
    rows = agree(
        spread.place,
        "a model's mask",
        fields,
        numbers=[int(padded)],
        refusal=refusal,
        device=where,
    )
    padding = None
    if any(row[0] for row in rows):
        assert attention_mask is not None, "all ranks have one or none has"
        part = attention_mask.to(torch.uint8)
        padding = unshard(part, spread.sharding, mesh=spread.mesh, dim=1).bool()
    together = attention_mask is not None
    whole = spread.mask(
        where,
        low=kind.low,
        high=kind.high,
        chunk=kind.chunk,
        padding=padding,
        together=together,
    )
    packed = spread.documents is not None and not together
    return SpreadMask(spread, (batch_size, q_length, kv_length), whole, packed)


def _check_step(
    spread: Spread,
    kind: MaskKind,
    q_length: int,
    kv_length: int,
    q_offset: int,
    attention_mask: Tensor | None,
) -> None:
    own = spread.sharding.lengths[spread.place.part]
    if q_offset or (kv_length != q_length and attention_mask is None):
        raise UnsupportedArgumentError(
            f"cache: expected none that holds earlier keys inside context_parallel, got one of "
            f"{max(q_offset, kv_length - q_length)} positions: generate() and steps of decoding "
            "are not spread; run them outside of it"
        )
    if q_length != own:
        raise ValueError(
            f"input_ids: expected the {own} positions that the sharding gives part "
            f"{spread.place.part}, got {q_length}; pass shard(input_ids, sharding, mesh=mesh)"
        )
    if attention_mask is not None and (attention_mask.ndim != 2 or attention_mask.shape[1] != own):
        raise ValueError(
            f"attention_mask: expected [B, {own}], that of part {spread.place.part} of the "
            f"sharding, got {list(attention_mask.shape)}; pass shard(attention_mask, sharding, "
            "mesh=mesh)"
        )
    if kind.unknown:
        raise UnsupportedArgumentError(
            f"mask: {', '.join(kind.unknown)} may hold tensors of one rank's positions, and cannot "
            "be spread; call context_parallel_attention with a block_mask of the whole sequence"
        )


@uncompiled("ranks agree in it")
def spread_attention(
    spread: Spread,
    name: str,
    before: Function,
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention for a layer; what one rank refuses is refused on all.

    Args:
        spread: over which ranks.
        name, before: the attention that the model was loaded with, and its own function.
        module, query, key, value, attention_mask, args, kwargs: as transformers calls it.
    """
    calls = spread.calls
    try:
        ours = isinstance(before, partial) and before.func is attention
        if not ours and name != "sdpa":
            raise UnsupportedArgumentError(
                f"attn_implementation: {name!r} cannot be spread over ranks; {_REMEDY}"
            )
        mask = _mask_of(spread, name, module, query, attention_mask, kwargs)
        compute = before if ours else partial(attention, None)
        found: tuple[Tensor, None] = compute(module, query, key, value, mask, *args, **kwargs)
        return found
    except Exception as error:
        if spread.calls != calls:
            raise
        spread.refuse(error, query.device)


def _mask_of(
    spread: Spread,
    name: str,
    module: torch.nn.Module,
    query: Tensor,
    attention_mask: Any,
    kwargs: dict[str, Any],
) -> SpreadMask:
    """Check a layer's call, and return its mask; a layer without one is causal where it says so."""
    positions = kwargs.get("position_ids")
    if isinstance(positions, Tensor):
        spread.check_positions(positions)
    if kwargs.get("position_bias") is not None:
        raise UnsupportedArgumentError(
            "position_bias: expected none inside context_parallel, got a tensor of one rank's "
            "positions; call context_parallel_attention with a score_mod"
        )
    if isinstance(attention_mask, SpreadMask):
        return attention_mask
    if attention_mask is not None:
        raise UnsupportedArgumentError(
            f"attention_mask: expected none of 4 dimensions inside context_parallel, got "
            f"{type(attention_mask).__name__} {list(getattr(attention_mask, 'shape', ()))}, which "
            "speaks of one rank's positions; pass shard(mask of [B, length], ...), or call "
            "context_parallel_attention with a block_mask of the whole sequence"
        )
    causal = kwargs.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True if name == "sdpa" else None)
    if causal is None:
        raise UnsupportedArgumentError(
            f"attention_mask: {type(module).__name__} gives none, and neither it nor its is_causal "
            "says whether queries see the keys after them"
        )
    window = kwargs.get("sliding_window") if causal else None
    low = None if window is None else 1 - window
    whole = spread.mask(query.device, low=low, high=1 if causal else None)
    sizes = (query.shape[0], query.shape[2], query.shape[2])
    return SpreadMask(spread, sizes, whole, spread.documents is not None)
