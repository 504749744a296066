"""The forward of a gated layer whose gate and up projection are multiplied at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchyard_kernels._accelerate._layers import biases, packed_storage
from torchyard_kernels._accelerate.gated._activation import Gate
from torchyard_kernels.linear._weights.product import packed_linear
from torchyard_kernels.linear._weights.storage import join

__all__ = ["GatedForward"]


class GatedForward:
    """``down(act(gate(x)) * up(x))``, put on a module in place of its forward.

    The module's parts stay its own, and are looked at in every call: with other parts, hooks on
    them, gradients, or in a recorded graph the module's class computes as it always did.

    Attributes:
        module: whose forward it is.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.gate = Gate()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the module's class does."""
        module = self.module
        plain = len(args) == 1 and not kwargs and not torch.compiler.is_compiling()
        if plain and not torch.is_grad_enabled() and (found := self._at_once(*args)) is not None:
            return found
        return type(module).forward(module, *args, **kwargs)

    def _at_once(self, x: Tensor) -> Tensor | None:
        parts: Any = self.module._modules
        gate, up, down = (parts.get(name) for name in ("gate_proj", "up_proj", "down_proj"))
        first, second = packed_storage(gate), packed_storage(up)
        if first is None or second is None or down is None:
            return None
        act: Any = getattr(self.module, "act_fn", None)
        joint = join((first, second))
        given = biases((gate, up))
        if joint is None or given is None or act is None:
            return None
        bias = torch.cat(given) if given else None
        gated = self.gate.product(joint.whole, bias, act, x)
        if gated is None:
            one, other = packed_linear(x, joint.whole, bias).chunk(2, -1)
            gated = act(one) * other
        out: Tensor = down(gated)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _bare, (), {"module": self.module}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.module = state["module"]
        self.gate = Gate()


def _bare() -> GatedForward:
    return GatedForward.__new__(GatedForward)
