"""What native code needs to read and make torch's tensors without torch's headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

__all__ = ["TENSOR_DTYPES", "TorchFunctions", "torch_functions"]

# In the order of native TensorDType.
TENSOR_DTYPES: Final = (
    *("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64"),
    "bool",
)

# What connecting to torch is checked with.
_PROBE: Final = (2, 3, 5, 7)

# A probe, a handle of it, the types of plain tensors, what makes a tensor of a handle, and whether
# that takes the handle over. A handle is used once.
TorchFunctions: TypeAlias = tuple[Tensor, Any, type, type, Callable[[Any], Tensor], bool]


def torch_functions() -> TorchFunctions | None:
    """Return what every ``_native.direct_...`` takes after its kernels; None where torch lacks it.

    Made anew for each, since a handle is taken over.
    """
    convert: Any = getattr(torch._C, "_aoti", None)
    handle_of = getattr(convert, "unsafe_alloc_void_ptr_from_tensor", None)
    wrap = getattr(convert, "alloc_tensor_by_stealing_from_void_ptr", None)
    if handle_of is None or wrap is None:
        return None
    takes = _takes(handle_of, wrap)
    if takes is None:
        return None
    probe = torch.empty(_PROBE, dtype=torch.float32, device="cpu")
    return probe, handle_of(probe), Tensor, torch.nn.Parameter, wrap, takes


def _takes(handle_of: Callable[[Tensor], Any], wrap: Callable[[Any], Tensor]) -> bool | None:
    """Return whether ``wrap`` takes a handle over; None where that cannot be seen.

    Its name says so, and in torch 2.13 it does not: who believes the name loses the memory of
    every output.
    """
    tensor = torch.empty(1, device="cpu")
    count = getattr(tensor, "_use_count", None)
    if count is None:
        return None
    before = count()
    wrapped = wrap(handle_of(tensor))
    owners = {before: True, before + 1: False}.get(count())
    return owners if wrapped is tensor else None
