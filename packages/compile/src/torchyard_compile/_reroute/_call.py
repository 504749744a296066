"""A call of torch's that another implementation may compute, and why one is left alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchyard import Decision
from torchyard_compile._choice import LeftAlone

__all__ = ["Rerouting", "check_plain"]

_PLAIN = frozenset({Tensor, nn.Parameter})


@dataclass(frozen=True, slots=True)
class Rerouting:
    """How a call of torch's would be computed.

    Attributes:
        form: what a decision depends on besides the settings: sizes, dtypes, flags.
        decide: returns the registry's decision for the call.
        run: computes the call by the op of ours, with torch's result type.
    """

    form: Hashable
    decide: Callable[[], Decision]
    run: Callable[[], Any]


def check_plain(*tensors: Tensor | None) -> None:
    """Leave a call alone whose tensors are of a subclass, or are none that kernels read.

    Raises:
        LeftAlone: names what a tensor is.
    """
    for tensor in tensors:
        if tensor is None:
            continue
        if type(tensor) not in _PLAIN:
            raise LeftAlone(f"an argument is a {type(tensor).__name__}, no plain tensor")
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            raise LeftAlone(f"a tensor is {tensor.layout} on {tensor.device.type}")
