"""transformers' attention and mask interfaces, replaced for the threads that are in a context.

A model asks the interfaces for its attention and its mask function by name. The instances that all
models share take an override for each name, which threads outside of any context call as before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from torchyard_context_parallel._spread import Spread

Function = Callable[..., Any]
Interface = MutableMapping[str, Function]


class _Current(threading.local):
    spread: Spread | None = None


_current: Final = _Current()
_lock: Final = threading.Lock()
# What each interface had before, and how many contexts there are.
_before: Final[list[tuple[Interface, dict[str, Function]]]] = []
_contexts: Final[list[Spread]] = []


@contextmanager
def taken_over(spread: Spread) -> Iterator[None]:
    """Spread the attention of this thread's models of transformers while the context lasts."""
    outer = _current.spread
    with _lock:
        _contexts.append(spread)
        if not _before:
            _take_over()
    _current.spread = spread
    try:
        yield
    finally:
        _current.spread = outer
        with _lock:
            _contexts.remove(spread)
            if not _contexts:
                _give_back()


def is_taken_over() -> bool:
    """Return whether transformers' interfaces are taken over."""
    return bool(_before)


def _take_over() -> None:
    modeling = sys.modules.get("transformers.modeling_utils")
    attentions: Interface | None = getattr(modeling, "ALL_ATTENTION_FUNCTIONS", None)
    if attentions is None:
        return
    masking = import_module("transformers.masking_utils")
    all_masks: Interface | None = getattr(masking, "ALL_MASK_ATTENTION_FUNCTIONS", None)
    if all_masks is None:
        return
    # Reads transformers' mask functions, so it is imported where transformers is.
    layers = import_module("torchyard_context_parallel.transformers._layers")
    for interface, made in ((attentions, layers.spread_attention), (all_masks, layers.spread_mask)):
        before = dict(interface.items())
        _before.append((interface, before))
        for name, function in before.items():
            interface[name] = _chosen(name, function, made)


def _give_back() -> None:
    for interface, before in _before:
        for name, function in before.items():
            del interface[name]
            if interface.get(name) is not function:
                interface[name] = function
    _before.clear()


def _chosen(name: str, before: Function, made: Function) -> Function:
    def choose(*args: Any, **kwargs: Any) -> Any:
        spread = _current.spread
        if spread is None:
            return before(*args, **kwargs)
        return made(spread, name, before, *args, **kwargs)

    return choose
