"""``Page``: what a model's layers computed of some tokens that are found together."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from torch import Tensor

__all__ = ["TOKENS", "Page", "bytes_of", "fits"]

# By the letter of a kind and the layer's number: keys and values [1, heads, tokens, size], and of
# layers that choose what is attended to, the keys by which they choose [1, tokens, size] and their
# positions [axes, 1, tokens].
Page = dict[str, Tensor]

TOKENS: Final[Mapping[str, int]] = MappingProxyType({"k": 2, "v": 2, "x": 1, "p": 2})
"""Letter of a kind -> the dimension of tokens."""


def bytes_of(page: Page) -> int:
    """Return the size of a page."""
    return sum(tensor.numel() * tensor.element_size() for tensor in page.values())


def fits(page: Page, sample: Page, size: int) -> bool:
    """Return whether a page of ``size`` tokens has the tensors that a model's pages have."""
    if page.keys() != sample.keys():
        return False
    for name, tensor in page.items():
        shape = list(sample[name].shape)
        shape[TOKENS[name[0]]] = size
        if list(tensor.shape) != shape:
            return False
    return True
