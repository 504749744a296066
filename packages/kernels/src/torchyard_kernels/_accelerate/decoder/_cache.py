"""A key-value cache of transformers that grows in place."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._large_pages import large_empty

__all__ = ["grow_in_place", "growing_layer", "reason_against_growing"]

# Positions that a cache has room for at least, and by how many it is rounded up.
_ROOM = 256


@lru_cache(maxsize=1)
def growing_layer() -> type:
    """Return the layer of a cache, derived from transformers' own.

    transformers appends by concatenation, which copies the whole cache at each token. Here keys
    and values lie in room for half as many more, and what is returned is a view of it: torch
    writes behind what earlier views show, never into it. Where gradients flow to keys it appends
    as transformers does.
    """
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc]
        keys: Tensor
        values: Tensor
        _key_room: Tensor | None = None
        _value_room: Tensor | None = None

        def update(
            self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, Tensor]:
            if torch.is_grad_enabled() and (key_states.requires_grad or value_states.requires_grad):
                found: tuple[Tensor, Tensor] = super().update(
                    key_states, value_states, *args, **kwargs
                )
                return found
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            self.keys, self._key_room = _appended(self.keys, key_states, self._key_room)
            self.values, self._value_room = _appended(self.values, value_states, self._value_room)
            return self.keys, self.values

        def next_places(self) -> tuple[Tensor, Tensor] | None:
            """Return where the next key and the next value lie, [B, H, 1, D]; None without room."""
            key_room, value_room = self._key_room, self._value_room
            if (
                not self.is_initialized
                or key_room is None
                or value_room is None
                or not (_lies_in(self.keys, key_room) and _lies_in(self.values, value_room))
            ):
                return None
            old = self.keys.shape[-2]
            if old >= key_room.shape[-2] or self.values.shape[-2] != old:
                return None
            return key_room.narrow(2, old, 1), value_room.narrow(2, old, 1)

        def take_next(self) -> tuple[Tensor, Tensor]:
            """Take what was written to the next places; return all keys and values."""
            assert self._key_room is not None
            assert self._value_room is not None
            new = self.keys.shape[-2] + 1
            self.keys = self._key_room.narrow(2, 0, new)
            self.values = self._value_room.narrow(2, 0, new)
            return self.keys, self.values

    return GrowingLayer


def _lies_in(held: Tensor, room: Tensor) -> bool:
    return (
        held.ndim == 4
        and held.data_ptr() == room.data_ptr()
        and held.stride() == room.stride()
        and held.shape[:2] == room.shape[:2]
    )


def _appended(held: Tensor, more: Tensor, room: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return what is held with more behind it [B, H, S, D], and the room that it lies in."""
    old = held.shape[-2] if held.numel() else 0
    new = old + more.shape[-2]
    fits = (
        room is not None
        and room.shape[-2] >= new
        and room.shape[:2] == more.shape[:2]
        and (old == 0 or (held.data_ptr() == room.data_ptr() and held.stride() == room.stride()))
    )
    if not fits or room is None:
        capacity = -(-(new + new // 2) // _ROOM) * _ROOM
        room = large_empty(more, (*more.shape[:2], capacity, more.shape[-1]))
        if old:
            room[:, :, :old] = held
    room[:, :, old:new] = more
    return room[:, :, :new], room


def grow_in_place(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the cache of a call grow in place: a forward pre-hook of a transformers model."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache: Any = kwargs.get("cache")
    # As it was called before transformers 5.24, and may be for some time.
    if cache is None:
        cache = kwargs.get("past_key_values")
    if type(cache) is DynamicCache and not torch.compiler.is_compiling():
        growing: Any = growing_layer()
        for place, layer in enumerate(cache.layers):
            if type(layer) is DynamicLayer:
                made = growing.__new__(growing)
                vars(made).update(vars(layer))
                cache.layers[place] = made
    return None


def reason_against_growing(model: Any) -> str:
    """Return why a model's cache grows by concatenation, or some of its layers; empty: in place."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    config = model.config
    if not model.can_generate():
        return ""
    if config.is_encoder_decoder:
        return "an encoder and a decoder have one of their own"
    layers = DynamicCache(config=config).layers
    others = [type(layer).__name__ for layer in layers if type(layer) is not DynamicLayer]
    return f"{len(others)} of its {len(layers)} layers are {others[0]}" if others else ""
