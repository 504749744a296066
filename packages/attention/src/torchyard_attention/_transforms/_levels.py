"""What transforms are active, as far as torch's public interface does not tell."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["forward_levels", "is_mapped"]

# Tried with torch 2.13, which has both.
_stack = torch._C._functorch.get_interpreter_stack
_FORWARD = torch._C._functorch.TransformType.Jvp


def forward_levels() -> int:
    """Return how many of torch.func's forward-mode derivatives are nested around the caller."""
    return sum(level.key() == _FORWARD for level in _stack() or ())


def is_mapped(tensor: Tensor) -> bool:
    """Return whether torch.vmap maps over a tensor, at any of the levels that wrap it."""
    while True:
        if torch._C._functorch.is_batchedtensor(tensor):
            return True
        if not torch._C._functorch.is_gradtrackingtensor(tensor):
            return False
        tensor = torch._C._functorch.get_unwrapped(tensor)
