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
from torchyard_cache._reuse._pages import TOKENS, Page

__all__ = ["RecordingCache"]

# Classes of layers all of whose content is known here.
_KNOWN: Final = frozenset(
    {"DynamicLayer", "DynamicIndexedLayer", "DynamicSlidingWindowLayer", "DummyLayer"}
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
        self._begin = 0
        self._written: dict[int, list[tuple[Tensor, Tensor]]] = {
            number: [] for number, layer in enumerate(self.layers) if _window(layer)
        }

    @classmethod
    def restored(cls, config: Any, pages: Sequence[Page], size: int) -> Self:
        """Return the cache as it would be after pages of ``size`` tokens; it shares no memory."""
        cache = cls(config)
        if pages:
            cache._begin = len(pages) * size
            for number in range(len(cache.layers)):
                cache._restore(number, pages, size)
        return cache

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
