"""Linear layers over packed weights, as forwards of several layers look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchyard_kernels.linear._weights.packed_tensor import PackedTensor
from torchyard_kernels.linear._weights.storage import WeightStorage

__all__ = ["biases", "is_untouched", "packed_storage"]


def is_untouched(module: torch.nn.Module) -> bool:
    """Return whether calling a module runs its class's forward and nothing else."""
    return not (
        "forward" in module.__dict__
        or module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )


def packed_storage(layer: Any) -> WeightStorage | None:
    """Return a layer's packed weight; None where it is no plain linear layer over one, now."""
    if not isinstance(layer, torch.nn.Linear) or not is_untouched(layer):
        return None
    if type(layer).forward is not torch.nn.Linear.forward:
        return None
    weight: Any = layer._parameters.get("weight")
    if type(weight) is not PackedTensor or weight.packed_storage.part is None:
        return None
    return weight.packed_storage


def biases(layers: Sequence[torch.nn.Linear]) -> list[Tensor] | None:
    """Return the layers' biases; none of them where no layer has one; None where only some do."""
    found = [layer._parameters.get("bias") for layer in layers]
    given: list[Tensor] = [bias for bias in found if bias is not None]
    return given if len(given) in (0, len(found)) else None
