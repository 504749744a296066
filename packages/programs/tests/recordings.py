"""Cached recordings, compared with a recording made now."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["Mod", "Text", "held"]

Mod = Callable[..., Tensor]
Text = tuple[str, list[Tensor]]


def held(
    function: Mod,
    cached: Callable[[Mod], tuple[str, tuple[Tensor, ...]] | None],
    recorded: Callable[[Mod], Text],
    traced: Callable[[Mod], Text],
) -> Text:
    """Record a function, by what was cached or not, as a recording made now does.

    Args:
        function: to be recorded.
        cached: returns what was cached of it.
        recorded: records it, or takes what was cached.
        traced: records it.
    """
    ready = cached(function)
    text, captured = recorded(function)
    expected, tensors = traced(function)
    assert text == expected
    assert [id(tensor) for tensor in captured] == [id(tensor) for tensor in tensors]
    if ready is not None:
        assert ready[0] is text
        assert [id(tensor) for tensor in ready[1]] == [id(tensor) for tensor in tensors]
    return text, captured
