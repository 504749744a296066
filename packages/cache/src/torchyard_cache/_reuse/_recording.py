"""``RecordingCache``: a cache of transformers that is cut into pages, and made of them.

It imports transformers, and is imported where a model of it is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import torch
from torch import Tensor
from transformers import DynamicCache

from torchyard_cache._errors import CacheError
from torchyard_cache._reuse._pages import TOKENS, Page, States

__all__ = ["RecordingCache"]

# Classes of layers all of whose content is known here.
_KNOWN: Final = frozenset(
    {
        "DummyLayer",
        "DynamicIndexedLayer",
        "DynamicLayer",
        "DynamicSlidingWindowLayer",
        "LinearAttentionAndFullAttentionLayer",
        "LinearAttentionAndSlidingWindowAttentionLayer",
        "LinearAttentionLayer",
    }
)


class RecordingCache(DynamicCache):  # type: ignore[misc]  # transformers is not typed
    """What a model computed of one prompt.

    A layer with a window drops keys and values that this prompt needs no more. They are recorded,
    as another prompt may end where they are needed.

    Args:
        config: of the model.

    Raises:
        CacheError: a layer's content is not known; says which.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        others = sorted({type(layer).__name__ for layer in self.layers} - _KNOWN)
        if others or not self.layers:
            raise CacheError(
                f"layers whose content is not known ({', '.join(others) or 'none at all'})"
            )
        # Tokens that it has, where no layer says how many.
        self.length = 0
        self._begin = 0
        self._counts = any(hasattr(layer, "get_seq_length") for layer in self.layers)
        self._written: dict[int, list[tuple[Tensor, Tensor]]] = {
            number: [] for number, layer in enumerate(self.layers) if _window(layer)
        }

    @classmethod
    def restored(cls, config: Any, pages: Sequence[Page], size: int, states: States) -> Self:
        """Return the cache as it would be after pages of ``size`` tokens; it shares no memory."""
        cache = cls(config)
        if pages:
            cache.length = cache._begin = len(pages) * size
            for number, layer in enumerate(cache.layers):
                cache._restore(number, pages, size)
                _restore_states(layer, number, states)
        return cache

    @property
    def is_linear(self) -> list[bool]:
        """Whether layers keep states alone.

        Of a model that has no other layers the answer is no: transformers then leaves out the
        beginning that is here, as of other models.
        """
        found: list[bool] = super().is_linear
        return found if self._counts else [False] * len(found)

    @property
    def is_compileable(self) -> bool:
        """Whether transformers may make a mask for it, which states have no use for."""
        return self._counts and bool(super().is_compileable)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the tokens that it has."""
        return int(super().get_seq_length(layer_idx)) if self._counts else self.length

    def states(self) -> States:
        """Return copies of what layers that keep no tokens are now; nothing before the first."""
        found = {}
        for number, layer in enumerate(self.layers):
            for place in range(getattr(layer, "number_of_states", 0)):
                inputs, state = layer.conv_states[place], layer.recurrent_states[place]
                if inputs is not None:
                    # More than a convolution reads where transformers may want to go back.
                    size = layer.conv_kernel_size[place]
                    found[f"c{number}.{place}"] = inputs[..., -size:].clone()
                if state is not None:
                    found[f"r{number}.{place}"] = state.clone()
        return found

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Take keys and values of new tokens, as transformers' own."""
        if layer_idx in self._written:
            self._written[layer_idx].append((key_states.clone(), value_states.clone()))
        found: tuple[Tensor, Tensor] = super().update(
            key_states, value_states, layer_idx, *args, **kwargs
        )
        return found

    def pages(self, first: int, last: int, size: int) -> Iterator[Page]:
        """Yield copies of pages of ``size`` tokens; what was restored is not among them.

        Args:
            first, last: numbers of the first page, and of the one after the last.
            size: tokens of a page.
        """
        written = {
            number: tuple(torch.cat(half, dim=2) for half in zip(*parts, strict=True))
            for number, parts in self._written.items()
            if parts
        }
        for place in range(first, last):
            page = {}
            for number, layer in enumerate(self.layers):
                begin = place * size
                if number in written:
                    begin -= self._begin
                    content = dict(zip("kv", written[number], strict=True))
                else:
                    content = _content(layer)
                for kind, tensor in content.items():
                    part = tensor.narrow(TOKENS[kind], begin, size)
                    page[f"{kind}{number}"] = part.clone(memory_format=torch.contiguous_format)
            yield page

    def _restore(self, number: int, pages: Sequence[Page], size: int) -> None:
        layer: Any = self.layers[number]
        if f"k{number}" not in pages[0]:
            return
        window = _window(layer)
        # A window of n sees n - 1 tokens before its own.
        count = -(-(window - 1) // size) if window > 1 else len(pages)
        content = {
            kind: torch.cat([page[f"{kind}{number}"] for page in pages[-count:]], dim=TOKENS[kind])
            for kind in TOKENS
            if f"{kind}{number}" in pages[0]
        }
        layer.update(content["k"], content["v"])
        if window:
            layer.cumulative_length = self._begin
        if "x" in content:
            layer.update_indexer(content["x"])
        if "p" in content:
            layer.indexer_position_ids = content["p"]


def _restore_states(layer: Any, number: int, states: States) -> None:
    for place in range(getattr(layer, "number_of_states", 0)):
        inputs, state = states.get(f"c{number}.{place}"), states.get(f"r{number}.{place}")
        # The layer copies.
        if inputs is not None:
            layer.update_conv_state(inputs, state_idx=place)
        if state is not None:
            layer.update_recurrent_state(state, state_idx=place)
        layer.has_previous_state[place] = inputs is not None or state is not None


def _window(layer: Any) -> int:
    """Return how many tokens a layer attends to; 0 for all."""
    return int(getattr(layer, "sliding_window", None) or 0)


def _content(layer: Any) -> dict[str, Tensor]:
    """Return what a layer without a window has of its tokens; nothing where it is not used."""
    found = {
        "k": getattr(layer, "keys", None),
        "v": getattr(layer, "values", None),
        "x": getattr(layer, "indexer_keys", None),
        "p": getattr(layer, "indexer_position_ids", None),
    }
    return {kind: tensor for kind, tensor in found.items() if tensor is not None}
