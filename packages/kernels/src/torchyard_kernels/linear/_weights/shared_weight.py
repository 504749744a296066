"""SharedWeight: a parameter that a linear layer shares with another layer, such as an embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from torchyard.torch_compat import without_torch_function
from torchyard_kernels.linear._weights.packed_weight import CONVERTIBLE, PackedWeight
from torchyard_kernels.linear._weights.product import packed_linear

__all__ = ["SharedWeight"]

_linear: Final[Any] = torch.nn.functional.linear
_DATA: Final[Any] = Tensor.data


class SharedWeight(Tensor):
    """A weight [N, K] in its own memory, with a packed copy by which linear layers multiply.

    The tensor is the one owner of its numbers. The copy is packed again when the tensor's memory or
    version counter has changed. ``.data`` returns what ``detach()`` does, so that writes through it
    change the version counter. Writes outside of torch (by a NumPy array over the same memory, or
    another process) are not noticed.
    """

    _pack: Callable[[Tensor], PackedWeight]
    _copy: tuple[object, PackedWeight] | None
    _replaced: int
    _is_param: bool

    @staticmethod
    def of(
        weight: Tensor, pack: Callable[[Tensor], PackedWeight], requires_grad: bool
    ) -> SharedWeight:
        """Return a parameter over a tensor's memory.

        Args:
            weight: [N, K].
            pack: makes the packed copy; can be pickled.
            requires_grad: of the parameter.
        """
        self: Any = Tensor._make_subclass(SharedWeight, weight.detach(), requires_grad)
        self._pack = pack
        self._copy = None
        self._replaced = 0
        self._is_param = True
        return self  # type: ignore[no-any-return]

    def packed_copy(self) -> PackedWeight:
        """Return the packed copy of the numbers as they are now."""
        with without_torch_function():
            key = self._replaced, self.data_ptr(), self._version, self.shape, self.stride()
            known = self._copy
            if known is not None and known[0] == key:
                return known[1]
            with torch.no_grad(), torch.inference_mode(False):
                packed = self._pack(_DATA.__get__(self))
        self._copy = key, packed
        return packed

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedWeight:
        found = memo.get(id(self))
        if found is None:
            found = SharedWeight.of(self.detach().clone(), self._pack, self.requires_grad)
            memo[id(self)] = found
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SharedWeight.of, (self.detach(), self._pack, self.requires_grad)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _linear and not torch.compiler.is_compiling():
            found = _multiplied(*args, **kwargs)
            if found is not None:
                return found
        elif func == _DATA.__get__:
            func = Tensor.detach
        elif func == _DATA.__set__:
            args[0]._replaced += 1
        with without_torch_function():
            return func(*args, **kwargs)


def _multiplied(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """Return ``linear(x, weight, bias)`` by the packed copy; None: by torch's operators."""
    if type(weight) is not SharedWeight or isinstance(input, SharedWeight):
        return None
    if weight.requires_grad and torch.is_grad_enabled():
        return None
    with without_torch_function():
        packable = weight.ndim == 2 and weight.dtype in CONVERTIBLE and weight.device.type != "meta"
        # Without a version counter a change would not be noticed.
        packable = packable and not weight.is_inference()
    return packed_linear(input, weight.packed_copy(), bias) if packable else None
