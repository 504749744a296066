"""Whether native code can read and make torch's tensors by itself, and its paths for ops.

It needs DLPack's exchange API on torch.Tensor, see native/bindings/tensor_reader.h. Where torch
lacks it, there is no fast path, and calls go through torch's dispatcher.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cpu import _native

__all__ = ["TENSOR_DTYPES", "NativePath", "reads_tensors"]

# In the order of native TensorDType.
TENSOR_DTYPES: Final = (
    *("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64"),
    "bool",
)


@lru_cache(maxsize=1)
def reads_tensors() -> bool:
    """Return whether native code can read torch's tensors; connects it to torch."""
    if not hasattr(Tensor, "__dlpack_c_exchange_api__"):
        return False
    return _native.connect_torch(
        (
            Tensor,
            torch.nn.Parameter,
            torch.UntypedStorage,
            tuple(getattr(torch, name) for name in TENSOR_DTYPES),
            torch.is_grad_enabled,
            torch.get_num_threads,
            torch.empty_strided,
            torch.empty_like,
        )
    )


class NativePath(ABC):
    """``torchyard.dispatch.KernelPath`` by the native module; an op's path says how it is enabled.

    Make one only where :func:`reads_tensors`.

    Args:
        functions: of the native path.
    """

    __slots__ = ("_enable", "clear", "try_call")

    def __init__(self, functions: _native.PathFunctions) -> None:
        self.try_call, self._enable, self.clear = functions

    @abstractmethod
    def enable(self, request: Any) -> bool:
        """Compute calls that make this request from now on, where native code can.

        Returns:
            False where the path was made for calls of another kind.
        """
