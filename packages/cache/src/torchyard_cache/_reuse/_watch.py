"""``GenerationWatch``: when a call's prompt was computed, and states on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torchyard_cache._reuse._pages import States
    from torchyard_cache._reuse._recording import RecordingCache

__all__ = ["GenerationWatch"]


class GenerationWatch:
    """A processor of logits that leaves them as they are.

    ``generate`` calls it with all tokens that its cache has. The first two calls tell what the
    prompt took. Where the tokens are whole pages of a model that has states, it copies the states:
    the next turn of a chat begins there.

    Args:
        cache: of the call.
        page: tokens of a page.
    """

    def __init__(self, cache: RecordingCache, page: int) -> None:
        self._cache = cache
        self._page = page
        self._times = [time.perf_counter()]
        # Number of pages -> states after them.
        self.last: dict[int, States] = {}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores."""
        if len(self._times) < 3:
            if scores.device.type != "cpu" and torch.accelerator.is_available():
                # Kernels may be in a queue.
                torch.accelerator.synchronize()
            self._times.append(time.perf_counter())
        pages, rest = divmod(input_ids.shape[1], self._page)
        if not rest and (states := self._cache.states()):
            self.last = {pages: states}
        return scores

    @property
    def seconds(self) -> float:
        """What the prompt took beyond a step of one token, where there was one; 0 of no prompt.

        A step is what every call takes: what is left is due to the other tokens.
        """
        intervals = [later - earlier for earlier, later in pairwise(self._times)]
        return intervals[0] - sum(intervals[1:]) if intervals else 0.0

    def added_to(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments of ``generate`` with this processor after their own."""
        from transformers import LogitsProcessorList

        own = kwargs.get("logits_processor") or ()
        return {**kwargs, "logits_processor": LogitsProcessorList([*own, self])}
