"""Tensors that a test makes, on another device, with the values that they have on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["TensorsOn"]

_FACTORIES: Final = frozenset(
    getattr(torch, name)
    for name in (
        *("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones"),
        *("rand", "randint", "randn", "randperm", "tensor", "tril_indices", "zeros"),
    )
)


class TensorsOn(TorchFunctionMode):
    """Make on another device what functions of torch make on the CPU, and leave it there.

    Numbers are drawn on the CPU: ``torch.set_default_device`` would refuse the tests' generators,
    and another generator has other values.

    Args:
        device: torch device type.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func is torch.Tensor.to:
            moved = {name: self._moved(value) for name, value in named.items()}
            return func(*map(self._moved, args), **moved)
        if func not in _FACTORIES or not _is_cpu(named.get("device", "cpu") or "cpu"):
            return func(*args, **named)
        requires_grad = named.pop("requires_grad", False)
        made = func(*args, **named)
        if made.device.type != "cpu":
            return made.requires_grad_(requires_grad)
        return made.to(self._device).requires_grad_(requires_grad)

    def _moved(self, value: Any) -> Any:
        return self._device if _is_cpu(value) else value


def _is_cpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value) == "cpu"
