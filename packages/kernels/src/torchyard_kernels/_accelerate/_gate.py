"""The activation of a gated layer's halves, computed by the product before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torchyard import registry
from torchyard_kernels._linear._function import Recorded
from torchyard_kernels._linear._ops import fused
from torchyard_kernels._linear._recordings import recorded
from torchyard_kernels._linear._request import request_of
from torchyard_kernels.contracts.linear import LINEAR, LinearCall, Packed, WeightSpec
from torchyard_programs import ProgramError

__all__ = ["Gate"]

# With fewer rows halves are small beside the weight, and a product alone has a shorter way.
_FEWEST: Final = 17

_module: Any = torch.nn.modules.module
_GLOBAL_HOOKS: Final = (_module._global_forward_hooks, _module._global_forward_pre_hooks)
_modes: Final = torch._C._len_torch_dispatch_stack
_functions: Final = torch._C._len_torch_function_stack
_transforming: Final = torch._C._are_functorch_transforms_active
_tracing: Final = torch._C._is_tracing
_autocasting: Final = torch._C._is_any_autocast_enabled


class Gate:
    """``act(gate) * up`` over the halves of a product, in one call with it."""

    __slots__ = ("_attributes", "_of", "_program")

    def __init__(self) -> None:
        # Of which module a program was recorded, for which dtype, and what it had as attributes.
        self._of: tuple[torch.nn.Module, torch.dtype] | None = None
        self._attributes: dict[str, Any] = {}
        self._program: Recorded | None = None

    def product(
        self, layer: torch.nn.Module, act: Callable[[Tensor], Tensor], x: Tensor
    ) -> Tensor | None:
        """Return ``act(gate) * up`` for the halves of ``layer(x)``; None: compute them apart.

        That is so where anything but the kernel takes part in a call, where the activation cannot
        be recorded, and where what serves the product alone does not serve both: then the function
        would cost more than it saves. That no graph is recorded is for the caller to know.

        Args:
            layer: a packed linear layer; rows of gate, then of up.
            act: of the gate.
            x: [..., K].
        """
        if not _is_plain(layer, x):
            return None
        packed: Any = layer.packed
        bias: Any = layer.bias
        columns: int = packed.shape[1]
        if x.dtype != packed.dtype or (bias is not None and bias.dtype != x.dtype):
            return None
        if x.shape[-1:] != (columns,) or x.numel() < _FEWEST * columns:
            return None
        program = self._recorded(act, x)
        if program is None:
            return None
        tensors, spec = packed.tensors, packed.spec_text
        held = Packed(WeightSpec.parse(spec), tuple(tensors))
        alone, both = (
            registry().decide(LINEAR, request_of(LinearCall(x, held, bias, None, epilogue))).chosen
            for epilogue in (None, program)
        )
        if both is None or both is not alone:
            return None
        return fused(x, tensors, spec, bias, None, program)

    def _recorded(self, act: Callable[[Tensor], Tensor], x: Tensor) -> Recorded | None:
        if not isinstance(act, torch.nn.Module):
            return _recorded(act, x)
        if act._parameters or act._buffers or act._modules or _is_hooked(act):
            return None
        if not self._is_of(act, x.dtype):
            self._program = _recorded(act, x)
            self._of, self._attributes = (act, x.dtype), dict(act.__dict__)
        return self._program

    def _is_of(self, act: torch.nn.Module, dtype: torch.dtype) -> bool:
        known = self._attributes
        return (
            self._of == (act, dtype)
            and known.keys() == act.__dict__.keys()
            and all(known[name] is value for name, value in act.__dict__.items())
        )


def _recorded(act: Callable[[Tensor], Tensor], x: Tensor) -> Recorded | None:
    try:
        program = recorded(lambda gate, up: act(gate) * up, "epilogue", True, x)
        program.check(x.dtype)
    except ProgramError:
        return None
    # A tensor that the activation holds may be another one in the next call.
    return None if program.captured else program


def _is_plain(layer: torch.nn.Module, x: Tensor) -> bool:
    """Return whether a call is of a tensor alone, and nobody but a profile sees the product."""
    return type(x) is Tensor and not (
        _modes()
        or _functions()
        or _transforming()
        or _tracing()
        or _autocasting()
        or forward_ad._current_level >= 0
        or _is_hooked(layer)
        or any(_GLOBAL_HOOKS)
    )


def _is_hooked(module: torch.nn.Module) -> bool:
    # Some who want to be told of calls put a forward of their own on the object.
    own = "forward" in module.__dict__
    return bool(own or module._forward_hooks or module._forward_pre_hooks)
