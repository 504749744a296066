"""Continuous batching: transformers' ``generate_batch`` with an attention of this package.

transformers gives each layer what it gives flash attention: packed keys, those of its cache
included, and where each sequence begins. That is a copy of all keys for every layer and token. In a
step in which every sequence has one query, the layer gets the cache's pages instead.

transformers has no registry for either. Its manager takes "sdpa", "paged|eager" and what has
"flash" in its name, and its cache copies. So two of their methods are replaced, once, by ones that
let registered names pass, and leave all others to transformers'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Final

from torch import Tensor

from torchyard_attention.transformers._pages import PAGES, pages_of_step

__all__ = ["allow"]

_MARK: Final = "_of_torchyard"

_names: set[str] = set()


def allow(name: str) -> None:
    """Let models with ``attn_implementation=name`` generate in continuous batches.

    Without effect where transformers has no continuous batching, or decides in another way; it
    then refuses the name itself.
    """
    _names.add(name)
    try:
        batching = import_module("transformers.generation.continuous_batching")
    except ImportError:
        return
    manager = getattr(batching, "ContinuousBatchingManager", None)
    cache = getattr(batching, "PagedAttentionCache", None)
    if manager is None or cache is None:
        return
    _replace(manager, "switch_to_cb_friendly_attn", _switch)
    _replace(cache, "update", _update)


def _replace(owner: Any, method: str, make: Callable[[Any], Any]) -> None:
    stock = getattr(owner, method, None)
    if stock is not None and not hasattr(stock, _MARK):
        own = wraps(stock)(make(stock))
        setattr(own, _MARK, True)
        setattr(owner, method, own)


def _switch(stock: Any) -> Any:
    """Return the manager's choice of an attention, which leaves registered ones as they are."""

    def switch(manager: Any, model: Any, *args: Any, **kwargs: Any) -> None:
        if model.config._attn_implementation not in _names:
            stock(manager, model, *args, **kwargs)

    return switch


def _update(stock: Any) -> Any:
    """Return the cache's update, which passes the pages to a registered attention."""

    def update(
        cache: Any, key_states: Tensor, value_states: Tensor, layer_idx: int, kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        if cache.config._attn_implementation in _names:
            pages = pages_of_step(cache, key_states, value_states, layer_idx, kwargs)
            if pages is not None:
                # These arguments, and no other ones, reach the layer's attention.
                kwargs[PAGES] = pages
                return key_states, value_states
        found: tuple[Tensor, Tensor] = stock(cache, key_states, value_states, layer_idx, kwargs)
        return found

    return update
