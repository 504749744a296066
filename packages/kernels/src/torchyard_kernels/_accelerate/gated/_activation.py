"""The activation of a gated layer, computed by the product before it as its epilogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import registry
from torchyard.torch_compat import (
    dispatch_mode_count,
    forward_ad_level,
    function_mode_count,
    is_autocast_enabled_anywhere,
    is_tracing,
    is_transform_active,
)
from torchyard_kernels._accelerate._layers import is_untouched
from torchyard_kernels.linear._functions.function import Recorded
from torchyard_kernels.linear._functions.recordings import recorded
from torchyard_kernels.linear._ops import compute
from torchyard_kernels.linear._weights.packed_weight import PackedWeight
from torchyard_kernels.linear.contract import LINEAR, LinearCall
from torchyard_programs import ProgramError

__all__ = ["Gate"]

# With fewer rows halves are small beside the weight, and a product alone has a shorter way.
_FEWEST: Final = 17

_module: Any = torch.nn.modules.module
_GLOBAL_HOOKS: Final = (_module._global_forward_hooks, _module._global_forward_pre_hooks)


class Gate:
    """``act(gate) * up`` over the halves of a product, in one call with it."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # One tuple, which threads replace and never change: of which module and for which dtype a
        # program was recorded, what the module had as attributes, and the program.
        self._known: tuple[torch.nn.Module, torch.dtype, dict[str, Any], Recorded | None] | None = (
            None
        )

    def product(
        self, packed: PackedWeight, bias: Tensor | None, act: Callable[[Tensor], Tensor], x: Tensor
    ) -> Tensor | None:
        """Return ``act(gate) * up`` for the halves of a product; None: compute them apart.

        None where anything but the kernel takes part in the call, where the activation cannot be
        recorded, and where another implementation computes the product alone: then the epilogue
        would cost more than it saves. The caller makes sure that no gradient is recorded.

        Args:
            packed: rows of gate, then of up.
            bias: theirs, or None.
            act: of the gate.
            x: [..., K].
        """
        if not _is_plain(x):
            return None
        columns: int = packed.shape[1]
        if x.dtype != packed.dtype or (bias is not None and bias.dtype != x.dtype):
            return None
        if x.shape[-1:] != (columns,) or x.numel() < _FEWEST * columns:
            return None
        program = self._recorded(act, x)
        if program is None:
            return None
        call = LinearCall(x, packed.packed, bias, None, program)
        alone, both = (
            registry().decide(LINEAR, one.request()).chosen
            for one in (replace(call, epilogue=None), call)
        )
        if both is None or both is not alone:
            return None
        return compute(call)

    def _recorded(self, act: Callable[[Tensor], Tensor], x: Tensor) -> Recorded | None:
        if not isinstance(act, torch.nn.Module):
            return _recorded(act, x)
        if act._parameters or act._buffers or act._modules or not is_untouched(act):
            return None
        known = self._known
        if known is None or not _is_of(known[:3], act, x.dtype):
            attributes = dict(act.__dict__)
            known = self._known = act, x.dtype, attributes, _recorded(act, x)
        return known[3]


def _is_of(
    known: tuple[torch.nn.Module, torch.dtype, dict[str, Any]],
    act: torch.nn.Module,
    dtype: torch.dtype,
) -> bool:
    module, of, attributes = known
    return (
        module is act
        and of == dtype
        and attributes.keys() == act.__dict__.keys()
        and all(attributes[name] is value for name, value in act.__dict__.items())
    )


def _recorded(act: Callable[[Tensor], Tensor], x: Tensor) -> Recorded | None:
    try:
        program = recorded(lambda gate, up: act(gate) * up, "epilogue", True, x)
        program.check(x.dtype)
    except ProgramError:
        return None
    # A tensor that the activation holds may be another one in the next call.
    return None if program.captured else program


def _is_plain(x: Tensor) -> bool:
    """Return whether a call is of a tensor alone, and nobody but a profile sees the product."""
    return type(x) is Tensor and not (
        dispatch_mode_count()
        or function_mode_count()
        or is_transform_active()
        or is_tracing()
        or is_autocast_enabled_anywhere()
        or forward_ad_level() >= 0
        or any(_GLOBAL_HOOKS)
    )
