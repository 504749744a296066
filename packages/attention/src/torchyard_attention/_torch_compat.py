"""The dispatcher's state inside of an op's kernel, made as it is outside of any op."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor
from torch.utils import _python_dispatch

_KEYS: Final = torch._C.DispatchKey

# What a kernel may need although it was called from below it: autograd, for the derivative of a
# score_mod, and functorch, for programs that are evaluated under vmap.
_NEEDED: Final = tuple(
    getattr(_KEYS, name)
    for name in (
        "AutogradFunctionality",
        "ADInplaceOrView",
        "FuncTorchDynamicLayerFrontMode",
        "FuncTorchDynamicLayerBackMode",
        "FuncTorchBatched",
        "FuncTorchBatchedDecomposition",
        "FuncTorchVmapMode",
        "FuncTorchGradWrapper",
        "PythonTLSSnapshot",
    )
    if hasattr(_KEYS, name)
)


@contextmanager
def as_outside_of_ops() -> Iterator[None]:
    """Let a kernel use autograd and vmap, whoever called its op.

    The dispatcher excludes the keys above an op while its kernel runs, and a dispatch mode (a
    counter of FLOPs, the check that torch.compile makes of custom ops) would see vmap's tensors,
    which it cannot handle. Both are put back on leaving.
    """
    excluded = [key for key in _NEEDED if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    for key in excluded:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        if torch._C._len_torch_dispatch_stack():
            with _python_dispatch._disable_current_modes():
                yield
        else:
            yield
    finally:
        for key in excluded:
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


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
