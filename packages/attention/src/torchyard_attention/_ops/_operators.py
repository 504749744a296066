"""The package's ops, ``torch.ops.torchyard_attention.*``, and how their kernels are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from torchyard import Operators
from torchyard_attention._torch_compat import as_outside_of_ops

__all__ = ["OPERATORS", "isolated"]

OPERATORS: Final = Operators("torchyard_attention", ["torchyard_attention", "torchyard_programs"])


def isolated(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that runs without gradients, and that may use autograd and vmap itself."""

    def run(*args: Any) -> Any:
        with as_outside_of_ops():
            # Mostly so already: in inference, and below autograd's formula.
            if not torch.is_grad_enabled():
                return kernel(*args)
            with torch.no_grad():
                return kernel(*args)

    return run
