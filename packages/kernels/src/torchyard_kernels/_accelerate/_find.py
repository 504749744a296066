"""What of a model can be put on packed weights, and why the rest cannot."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from torchyard_kernels._accelerate._layers import is_untouched
from torchyard_kernels.linear._weights.packed_weight import CONVERTIBLE

__all__ = ["GATED", "PROJECTIONS", "gated_parts", "projections_parts", "reason_against"]

GATED: Final = ("gate_proj", "up_proj", "down_proj")
PROJECTIONS: Final = ("q_proj", "k_proj", "v_proj")
# Rows of a trial.
_TRIAL = 3
_Linears = tuple[torch.nn.Linear, ...]


def reason_against(module: torch.nn.Module) -> str:
    """Return why a linear layer's weight cannot be packed; empty where it can."""
    kind = type(module)
    if not isinstance(module, torch.nn.Linear):
        return f"{kind.__name__} is not a linear layer"
    if parametrize.is_parametrized(module):
        return "its weight is computed at each access (parametrize)"
    if kind.forward is not torch.nn.Linear.forward:
        return f"{kind.__name__} computes something else than torch.nn.Linear does"
    if kind is torch.nn.modules.linear.NonDynamicallyQuantizableLinear:
        return "the module around it reads its weight and does not call it"
    if "forward" in vars(module):
        return "it has a forward of its own, put on the object"
    weight = module._parameters.get("weight")
    if weight is None:
        return "its weight is no parameter: hooks compute it before each call"
    if type(weight) is not torch.nn.Parameter:
        return f"its weight is a {type(weight).__name__}"
    if weight.device.type == "meta":
        return "its weight has no data yet (device meta)"
    if weight.dtype not in CONVERTIBLE:
        return f"its weight is of {weight.dtype}"
    if weight.numel() and weight.untyped_storage().nbytes() == 0:
        return "the memory of its weight was freed"
    return ""


def gated_parts(module: torch.nn.Module) -> _Linears | str:
    """Return (gate, up, down) where a module is ``down(act(gate(x)) * up(x))``, found by trial.

    Else why it is not; empty for what does not have such parts.
    """
    parts = _linears(module, GATED)
    act = getattr(module, "act_fn", None)
    if isinstance(parts, str) or act is None:
        return parts if isinstance(parts, str) else ""
    gate, up, down = parts
    if not is_untouched(module):
        return "there are hooks on it, or a forward of its own"
    if not callable(act):
        return "its act_fn cannot be called"
    if (gate.in_features, gate.out_features) != (up.in_features, up.out_features):
        return "gate_proj and up_proj have different sizes"
    if (gate.bias is None) != (up.bias is None) or gate.weight.dtype != up.weight.dtype:
        return "gate_proj and up_proj differ in dtype or bias"
    x = _sample(gate)
    try:
        with torch.no_grad():
            same = torch.equal(module(x), down(act(gate(x)) * up(x)))
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        return f"a trial of it ended in {type(error).__name__}: {error}"
    return parts if same else "it is not down_proj(act_fn(gate_proj(x)) * up_proj(x))"


def projections_parts(module: torch.nn.Module) -> _Linears | str:
    """Return a module's projections to queries, keys and values that have the same input.

    Else why not; empty for what does not have such parts.
    """
    parts = _linears(module, PROJECTIONS)
    if isinstance(parts, str):
        return parts
    first = parts[0]
    for part in parts:
        if part.in_features != first.in_features:
            return "q_proj, k_proj and v_proj have inputs of different sizes"
        if part.weight.dtype != first.weight.dtype or (part.bias is None) != (first.bias is None):
            return "q_proj, k_proj and v_proj differ in dtype or bias"
    return parts


def _linears(module: torch.nn.Module, names: tuple[str, ...]) -> _Linears | str:
    parts = [module._modules.get(name) for name in names]
    if any(part is None for part in parts):
        return ""
    for name, part in zip(names, parts, strict=True):
        assert part is not None
        if reason := reason_against(part):
            return f"{name}: {reason}"
        if not is_untouched(part):
            return f"{name}: hooks are registered on it"
    return tuple(part for part in parts if isinstance(part, torch.nn.Linear))


def _sample(layer: torch.nn.Linear) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_TRIAL, layer.in_features, generator=generator).to(layer.weight)
