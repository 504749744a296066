"""A pointwise function that is recorded once, for those who call it at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.pointwise._api import write
from torchyard_programs import result_count, trace

__all__ = ["PreparedMap"]


class PreparedMap:
    """Do what foreach_map_ does, for a function that captures nothing.

    Args:
        fn: as foreach_map takes it.
        arguments: how many it takes.
    """

    def __init__(self, fn: Callable[..., Any], arguments: int) -> None:
        inputs = tuple([(f"x{index}", None) for index in range(arguments)])
        self._name = fn.__name__
        self._text, captured = trace(fn, self._name, inputs, torch.device("cpu"))
        assert not captured, self._name
        self._results = result_count(self._text) or 1

    def __call__(self, *lists: Any, out: Sequence[Sequence[Tensor]] | None = None) -> None:
        """Compute, and write to ``out``, or to the first lists, as many as there are results."""
        written = lists[: self._results] if out is None else out
        write(self._text, (), lists, written)
