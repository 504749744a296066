"""``Page``: what a model's layers computed of some tokens that are found together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from torch import Tensor

__all__ = ["TOKENS", "Page", "States", "bytes_of", "fits", "page_keys"]

# By the letter of a kind and the layer's number: keys and values [1, heads, tokens, size], and of
# layers that choose what is attended to, the keys by which they choose [1, tokens, size] and their
# positions [axes, 1, tokens].
Page = dict[str, Tensor]
# What layers that keep no tokens are after some: the last inputs of convolutions and recurrent
# states, by the letter of the kind (c, r), the layer's number and the state's.
States = dict[str, Tensor]

TOKENS: Final[Mapping[str, int]] = MappingProxyType({"k": 2, "v": 2, "x": 1, "p": 2})
"""Letter of a kind -> the dimension of tokens."""


# Of an entry beside its tensors.
_LEAST: Final = 256


def bytes_of(page: Page | States) -> int:
    """Return the size of an entry."""
    return _LEAST + sum(tensor.numel() * tensor.element_size() for tensor in page.values())


def page_keys(identity: str, tokens: Sequence[int], size: int) -> list[str]:
    """Return a key for each whole page of ``size`` tokens; it covers everything before, too.

    Args:
        identity: of what computes the pages, and of who may find them.
        tokens: of a prompt, from its beginning.
        size: tokens of a page.
    """
    last, keys = identity, []
    for begin in range(0, len(tokens) - size + 1, size):
        text = ",".join(map(str, tokens[begin : begin + size]))
        last = hashlib.sha256(f"{last}:{text}".encode()).hexdigest()
        keys.append(last)
    return keys


def fits(page: Page | States, sample: Page | States, size: int) -> bool:
    """Return whether a page of ``size`` tokens, or states, have the tensors that a model's have."""
    if page.keys() != sample.keys():
        return False
    for name, tensor in page.items():
        shape = list(sample[name].shape)
        if name[0] in TOKENS:
            shape[TOKENS[name[0]]] = size
        if list(tensor.shape) != shape or tensor.dtype != sample[name].dtype:
            return False
    return True
