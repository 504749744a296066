"""Compiled functions inside of a TorchDispatchMode, such as a counter of operations.

torch does not compile there. A compiled function that is called in such a mode it runs uncompiled
for good until torch 2.13, after the mode is left too, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchyard_compile import torch_compat

__all__ = ["eager_in_modes"]


def eager_in_modes(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that runs uncompiled in dispatch modes, and there alone."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not torch_compat.in_dispatch_mode():
            return compiled(*args, **kwargs)
        with torch.compiler.set_stance("force_eager"):
            return compiled(*args, **kwargs)

    return run
