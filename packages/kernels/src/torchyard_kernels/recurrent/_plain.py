"""Whether a call may go to its implementation without passing through torch's dispatcher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from torchyard_programs import is_undisturbed

__all__ = ["is_plain"]

_PLAIN: Final = (Tensor, torch.nn.Parameter)


def is_plain(tensors: Iterable[Tensor]) -> bool:
    """Return whether nothing but an implementation would take part in a call on these tensors.

    A mode, a transform, a trace, a profile or a tensor of another kind takes part, and so does
    compilation. Whether gradients are wanted is for the caller to know.
    """
    if torch.compiler.is_compiling() or not is_undisturbed():
        return False
    return all(
        type(tensor) in _PLAIN and not tensor.is_neg() and not tensor._is_zerotensor()
        for tensor in tensors
    )
