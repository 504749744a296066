"""What the steps of all optimisers have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from torchyard import TorchyardError
from torchyard_kernels._torch_compat import add_to_each
from torchyard_kernels.pointwise._prepared import PreparedMap

__all__ = [
    "StepOptionError",
    "advanced",
    "check_gradient",
    "evaluated_closure",
    "refuse_options",
]


class StepOptionError(TorchyardError, RuntimeError):
    """An option of torch's optimiser asks for what these do not do."""


def evaluated_closure(closure: Callable[[], Any] | None) -> Any:
    """Return the loss that a closure computes, with gradients recorded; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def refuse_options(optimizer: str, group: dict[str, Any], *names: str) -> None:
    """Refuse options that a group has switched on.

    Raises:
        StepOptionError: names the option and what to do.
    """
    for name in names:
        if group.get(name):
            raise StepOptionError(
                f"{optimizer}: {name}: expected False, got True: a step reads its counters on the "
                f"host and records no gradients; use torch.optim.{optimizer} for that"
            )


def check_gradient(optimizer: str, gradient: Tensor) -> None:
    """Refuse gradients that no kernel here reads.

    Raises:
        StepOptionError: the gradient is sparse or complex.
    """
    if gradient.is_sparse or gradient.is_complex():
        kind = "sparse" if gradient.is_sparse else "complex"
        raise StepOptionError(f"{optimizer}: expected dense real gradients, got a {kind} one")


@cache
def _one_more() -> PreparedMap:
    def one_more(count: Any) -> Any:
        return count + 1

    return PreparedMap(one_more, 1)


def advanced(steps: Sequence[Tensor]) -> list[float]:
    """Count a step in each counter, and return what they say."""
    if all(step.dtype is torch.float32 for step in steps):
        _one_more()(list(steps))
    else:
        add_to_each(steps, 1)
    counts: list[float] = torch.stack(list(steps)).tolist()
    return counts
