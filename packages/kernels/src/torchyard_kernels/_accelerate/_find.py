"""What of a model can be replaced, and why the rest cannot."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.utils import parametrize

__all__ = ["PANEL", "gated_parts", "projections_parts", "reason_against"]

_GATED = ("gate_proj", "up_proj", "down_proj")
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Rows of a common weight that begin on a multiple of it are a view of it, in any format.
PANEL: Final = 64
# Rows of a trial.
_TRIAL = 3


def reason_against(module: torch.nn.Module) -> str:
    """Return why a linear layer cannot be replaced; empty where it can."""
    kind = type(module)
    if not isinstance(module, torch.nn.Linear):
        return f"{kind.__name__} is not a linear layer"
    if kind.forward is not torch.nn.Linear.forward:
        return f"{kind.__name__} computes something else than torch.nn.Linear does"
    if parametrize.is_parametrized(module):
        return "its weight is computed at each access (parametrize)"
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    if any(hooks):
        return "hooks are registered on it"
    if type(module.weight) not in (Tensor, torch.nn.Parameter):
        return f"its weight is a {type(module.weight).__name__}"
    if module.weight.device.type == "meta":
        return "its weight has no data yet (device meta)"
    if module.weight.dtype not in _DTYPES:
        return f"its weight is of {module.weight.dtype}"
    return ""


def gated_parts(module: torch.nn.Module) -> tuple[torch.nn.Linear, ...] | None:
    """Return (gate, up, down) where a module is ``down(act(gate(x)) * up(x))``, found by trial."""
    parts = _linears(module, _GATED)
    act = getattr(module, "act_fn", None)
    if parts is None or not callable(act) or module._forward_hooks or module._forward_pre_hooks:
        return None
    gate, up, down = parts
    if (gate.in_features, gate.out_features) != (up.in_features, up.out_features):
        return None
    if (gate.bias is None) != (up.bias is None) or gate.weight.dtype != up.weight.dtype:
        return None
    x = _sample(gate)
    try:
        with torch.no_grad():
            same = torch.equal(module(x), down(act(gate(x)) * up(x)))
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return None
    return parts if same else None


def projections_parts(module: torch.nn.Module) -> tuple[torch.nn.Linear, ...] | None:
    """Return a module's projections to queries, keys and values where one input can serve all."""
    parts = _linears(module, _PROJECTIONS)
    if parts is None:
        return None
    first = parts[0]
    alike = all(
        part.in_features == first.in_features
        and part.weight.dtype == first.weight.dtype
        and (part.bias is None) == (first.bias is None)
        and part.out_features % PANEL == 0
        for part in parts
    )
    return parts if alike else None


def _linears(module: torch.nn.Module, names: tuple[str, ...]) -> tuple[torch.nn.Linear, ...] | None:
    parts = [module._modules.get(name) for name in names]
    if not all(isinstance(part, torch.nn.Linear) and not reason_against(part) for part in parts):
        return None
    return tuple(part for part in parts if isinstance(part, torch.nn.Linear))


def _sample(layer: torch.nn.Linear) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_TRIAL, layer.in_features, generator=generator).to(layer.weight)
