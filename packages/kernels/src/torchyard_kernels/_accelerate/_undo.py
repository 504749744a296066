"""The way back from an accelerated model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._accelerate._plan import Holder
from torchyard_kernels._accelerate._report import AccelerateError
from torchyard_kernels.linear._weights.packed_tensor import PackedTensor

__all__ = ["Undo"]


class Undo:
    """What was put into a model, and how it is taken out.

    Attributes:
        parameters: (who has it, the original, what took its place).
        handles: of hooks.
        forwards: (module, the forward that was put on it).
    """

    def __init__(self) -> None:
        self.parameters: list[tuple[Holder, Tensor, Tensor]] = []
        self.handles: list[Any] = []
        self.forwards: list[tuple[torch.nn.Module, object]] = []

    def put_forward(self, module: torch.nn.Module, forward: object) -> None:
        """Put a forward on a module."""
        module.forward = forward  # type: ignore[assignment]
        self.forwards.append((module, forward))

    def __call__(self) -> None:
        """Put the very parameters back, with the numbers that the model has now.

        Where somebody put another parameter on a module, that stays.

        Raises:
            AccelerateError: a forward was put over ours, or a rounded weight was written, so that
                nobody has its exact numbers. Nothing was put back.
        """
        for module, forward in self.forwards:
            if vars(module).get("forward", forward) is not forward:
                raise AccelerateError(
                    f"accelerate: undo: somebody put another forward on a {type(module).__name__}; "
                    f"take that off first; nothing was put back"
                )
        for holder, _, placed in self.parameters:
            if (
                isinstance(placed, PackedTensor)
                and placed.packed_storage.is_rounded
                and _written(placed)
            ):
                raise AccelerateError(
                    f"accelerate: undo: {holder.name}.{holder.key} was written since, and its "
                    f"exact numbers are known no more; nothing was put back"
                )
        for holder, original, placed in self.parameters:
            if holder.module._parameters.get(holder.key) is placed:
                _refresh(original, placed)
                holder.module._parameters[holder.key] = original  # type: ignore[assignment]
        for module, forward in self.forwards:
            if vars(module).get("forward") is forward:
                del module.forward
        for handle in self.handles:
            handle.remove()


def _written(placed: PackedTensor) -> bool:
    return placed.packed_storage.writes > 0


def _refresh(original: Tensor, placed: Tensor) -> None:
    """Give the original the numbers, the dtype and the device that the model has now."""
    if isinstance(placed, PackedTensor):
        if _written(placed) or placed.packed_storage.part is None:
            original.data = placed.unpack().detach()
        elif original.dtype != placed.dtype or original.device != placed.device:
            original.data = original.data.to(placed.device, placed.dtype)
    elif original.data_ptr() != placed.data_ptr() or original.shape != placed.shape:
        original.data = placed.detach()
