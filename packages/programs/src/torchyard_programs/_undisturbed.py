"""Whether something besides autograd and a kernel may take part in a call.

Where nothing does, a call may go to its kernel without passing through torch's dispatcher, which
costs more than a short call's arithmetic, and a function that is recorded meets its tensors alone.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

__all__ = ["is_undisturbed"]

# Named here, because a look-up through modules costs as much as the question.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transforming = torch._C._are_functorch_transforms_active
_tracing = torch._C._is_tracing
_profiling = torch._C._autograd._profiler_enabled
_autocasting = torch._C._is_any_autocast_enabled


def is_undisturbed() -> bool:
    """Return whether no mode, transform, trace, profile, autocast or forward derivative is active.

    That nothing is being compiled is for the caller to know.
    """
    return not (
        _dispatch_modes()
        or _function_modes()
        or _transforming()
        or _tracing()
        # So that a profile names the op.
        or _profiling()
        # It casts the arguments of whatever torch's operators an implementation calls.
        or _autocasting()
        or forward_ad._current_level >= 0
    )
