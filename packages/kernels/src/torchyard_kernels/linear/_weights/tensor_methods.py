"""Methods of torch.Tensor for a tensor whose memory is packed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import Tensor

from torchyard.torch_compat import without_torch_function
from torchyard_kernels.linear._errors import PackedWriteError
from torchyard_kernels.linear._weights.storage import WeightStorage

__all__ = ["METHODS", "SETTERS"]


def _set_data(weight: Any, value: Any) -> None:
    """Take another tensor's memory, as assigning to ``.data`` does.

    With the memory of a plain tensor the weight is plain from then on, whatever its class.
    """
    storage: WeightStorage | None = getattr(value, "_storage", None)
    if storage is not None and (storage.part is None or value._views):
        storage, value = None, value.unpack()
    with without_torch_function():
        Tensor.data.__set__(weight, value)  # type: ignore[attr-defined]
    weight._storage = WeightStorage(None, value.detach()) if storage is None else storage
    weight._views = ()


def _set(weight: Any, *source: Any, **others: Any) -> Any:
    if len(source) == 1 and isinstance(source[0], Tensor) and not others:
        _set_data(weight, source[0])
        return weight
    with without_torch_function():
        return Tensor.set_(weight, *source, **others)


def _share_memory(weight: Any) -> Any:
    for tensor in weight.packed_weight.tensors:
        tensor.share_memory_()
    return weight


def _is_shared(weight: Any) -> bool:
    return all(tensor.is_shared() for tensor in weight.packed_weight.tensors)


def _address(weight: Any) -> Any:
    raise PackedWriteError(
        "PackedTensor: its numbers lie in memory in a packed order, and have no address in the "
        "order of the weight; use unpack(), or state_dict(), which unpacks"
    )


def _numpy(weight: Any, *, force: bool = False) -> Any:
    found = weight.unpack().numpy(force=force)
    # It is a copy: writes to it would be lost.
    found.flags.writeable = False
    return found


def _as_plain(name: str) -> Callable[..., Any]:
    return lambda weight, *args, **kwargs: getattr(weight.unpack(), name)(*args, **kwargs)


# These apply to weights that became plain, too.
SETTERS: Final[dict[Any, Callable[..., Any]]] = {
    Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    Tensor.set_: _set,
}
METHODS: Final[dict[Any, Callable[..., Any]]] = {
    Tensor.share_memory_: _share_memory,
    Tensor.is_shared: _is_shared,
    Tensor.data_ptr: _address,
    Tensor.storage: _address,
    Tensor.numpy: _numpy,
    Tensor.__array__: lambda weight, *args, **kwargs: weight.unpack().__array__(*args, **kwargs),
    Tensor.tolist: _as_plain("tolist"),
    Tensor.contiguous: _as_plain("contiguous"),
}
