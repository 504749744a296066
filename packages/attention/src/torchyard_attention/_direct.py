"""Whether a call may go to its kernel without passing through torch's dispatcher.

The dispatcher costs more than a short call's arithmetic. It is needed only where something besides
the kernel takes part in a call: autograd, a mode, a transform, a tensor of another kind.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.autograd import forward_ad

__all__ = ["is_plain"]


def is_plain(tensors: Iterable[Tensor]) -> bool:
    """Return whether only the kernel would take part in a call on these tensors.

    Reads no data. That no gradient is wanted is for the caller to know.
    """
    if (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        # So that a profile names the op.
        or torch._C._autograd._profiler_enabled()
        or forward_ad._current_level >= 0
    ):
        return False
    for tensor in tensors:
        # A negated or zero tensor is one that the dispatcher makes real before a kernel sees it.
        if type(tensor) not in _PLAIN or tensor.is_neg() or tensor._is_zerotensor():
            return False
    return True


_PLAIN = (Tensor, torch.nn.Parameter)
