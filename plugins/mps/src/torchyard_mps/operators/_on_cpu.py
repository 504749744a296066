"""``kernel_on_cpu``: an operator of the device, computed by torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchyard_mps.operators.replacements._outputs import fill

__all__ = ["kernel_on_cpu"]


def kernel_on_cpu(operator: str, done: Callable[[int], None]) -> Callable[..., Any]:
    """Return a kernel that computes an operator of ATen on copies of its tensors.

    Args:
        operator: with its overload. A tensor that it takes by name is an output.
        done: called with the bytes that a call copied, there and back.
    """
    name, _, overload = operator.partition(".")
    compute = getattr(getattr(torch.ops.aten, name), overload or "default")

    def kernel(*given: Any, **named: Any) -> Any:
        tensors = [one for one in (*given, *named.values()) if isinstance(one, Tensor)]
        outputs = {key: one for key, one in named.items() if isinstance(one, Tensor)}
        host = {key: torch.empty(0, dtype=one.dtype) for key, one in outputs.items()}
        result = compute(*map(_on_cpu, given), **{**named, **host})
        results = result if isinstance(result, tuple) else (result,)
        inputs = tensors[: len(tensors) - len(outputs)]
        done(sum(one.nbytes for one in (*inputs, *results)))
        if outputs:
            found = [fill(operator, one, host[key].to(one.device)) for key, one in outputs.items()]
        else:
            found = [one.to(tensors[0].device) for one in results]
        return tuple(found) if isinstance(result, tuple) else found[0]

    return kernel


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, Tensor) else value
