"""Whether a call may go to its kernel without passing through torch's dispatcher.

The dispatcher costs more than a short call's arithmetic. It is needed only where something besides
autograd and the kernel takes part in a call: a mode, a transform, a tensor of another kind.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from torchyard_programs import is_undisturbed

__all__ = ["is_plain"]

# torchyard.is_batch_of_gradients, without a look-up through modules, which costs as much as the
# question. No transform shows these batches.
_is_batch_of_gradients = torch._C._functorch.is_legacy_batchedtensor


def is_plain(tensors: Iterable[Tensor]) -> bool:
    """Return whether only the kernel would take part in a call on these tensors.

    Reads no data. Whether autograd takes part is for the caller to know.
    """
    if torch.compiler.is_compiling() or not is_undisturbed():
        return False
    for tensor in tensors:
        # A negated or zero tensor is one that the dispatcher makes real before a kernel sees it.
        if type(tensor) not in _PLAIN or tensor.is_neg() or tensor._is_zerotensor():
            return False
        if _is_batch_of_gradients(tensor):
            return False
    return True


_PLAIN = (Tensor, torch.nn.Parameter)
