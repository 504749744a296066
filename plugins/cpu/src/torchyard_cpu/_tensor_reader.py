"""Whether native code can read and make torch's tensors by itself, and its paths for ops.

It needs DLPack's exchange API on torch.Tensor, see native/bindings/tensor_reader.h. Where torch
lacks it, there is no fast path, and calls go through torch's dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_cpu import _native

__all__ = ["TENSOR_DTYPES", "NativePath", "native_path", "reads_tensors"]

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
        )
    )


class NativePath:
    """``torchyard.dispatch.KernelPath`` by the native module.

    Args:
        native: the native path.
        key: returns a request's RequestKey, or None where the path does not compute its calls.
        kind: returns what all requests of one path have in common.
        request: one of the path's requests.
    """

    __slots__ = ("_common", "_key", "_kind", "_native", "clear", "try_call")

    def __init__(
        self,
        native: _native.FastPath,
        key: Callable[[Any], tuple[int, ...] | None],
        kind: Callable[[Any], Any] | None,
        request: Any,
    ) -> None:
        self._native, self._key, self._kind = native, key, kind
        self._common = None if kind is None else kind(request)
        self.try_call: Callable[..., Any] = native.try_call
        self.clear = native.clear

    def enable(self, request: Any) -> bool:
        """Compute calls that make this request from now on, where native code can."""
        if self._kind is not None and self._kind(request) != self._common:
            return False
        key = self._key(request)
        if key is not None:
            self._native.enable(key)
        return True


def native_path(
    make: Callable[[], _native.FastPath],
    key: Callable[[Any], tuple[int, ...] | None],
    kind: Callable[[Any], Any] | None = None,
    request: Any = None,
) -> NativePath | None:
    """Return a path with nothing enabled; None where native code cannot read torch's tensors.

    Args:
        make: returns the native path.
        key, kind, request: as of :class:`NativePath`.
    """
    return NativePath(make(), key, kind, request) if reads_tensors() else None
