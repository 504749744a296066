"""Whether a call may go to its implementation without passing through torch's dispatcher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["is_plain"]

_PLAIN: Final = (Tensor, torch.nn.Parameter)

# Named here, because a look-up through modules costs as much as the question.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_profiling = torch._C._autograd._profiler_enabled


def is_plain(tensors: Iterable[Tensor]) -> bool:
    """Return whether nothing but an implementation would take part in a call on these tensors.

    A mode, a transform, a trace, a profile or a tensor of another kind takes part, and so does
    compilation. Whether gradients are wanted is for the caller to know.
    """
    if (
        torch.compiler.is_compiling()
        or _dispatch_modes()
        or _function_modes()
        or _transform() is not None
        or _tracing() is not None
        or _profiling()
        or forward_ad._current_level >= 0
    ):
        return False
    return all(
        type(tensor) in _PLAIN and not tensor.is_neg() and not tensor._is_zerotensor()
        for tensor in tensors
    )
