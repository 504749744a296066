"""``StateWatch``: the states after the last whole page that a call generates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from torchyard_cache._reuse._pages import States
    from torchyard_cache._reuse._recording import RecordingCache

__all__ = ["StateWatch"]


class StateWatch:
    """A processor of logits that leaves them as they are.

    ``generate`` calls it with all tokens that its cache has: where they are whole pages, it copies
    the states. The next turn of a chat begins there.

    Args:
        cache: of the call.
        page: tokens of a page.
    """

    def __init__(self, cache: RecordingCache, page: int) -> None:
        self._cache = cache
        self._page = page
        # Number of pages -> states after them.
        self.last: dict[int, States] = {}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores."""
        pages, rest = divmod(input_ids.shape[1], self._page)
        if not rest:
            self.last = {pages: self._cache.states()}
        return scores

    def added_to(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments of ``generate`` with this processor after their own."""
        from transformers import LogitsProcessorList

        own = kwargs.get("logits_processor") or ()
        return {**kwargs, "logits_processor": LogitsProcessorList([*own, self])}
