"""Steps of torch's optimisers by ``torchyard_kernels.optim``."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from inspect import unwrap
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchyard import registry
from torchyard_compile._calls import Calls
from torchyard_compile._choice import LeftAlone
from torchyard_compile._reroute._call import Rerouting, check_installed, check_plain, choice
from torchyard_compile._reroute._verification import compare

__all__ = ["ReroutedSteps", "note_step"]

_Closure = Callable[[], Any] | None

# torch's optimiser -> ours, which has its groups and its state.
_OURS: Final[Mapping[type[Optimizer], str]] = MappingProxyType(
    {
        torch.optim.Adam: "AdamW",
        torch.optim.AdamW: "AdamW",
        torch.optim.Adafactor: "Adafactor",
        torch.optim.Muon: "Muon",
    }
)
# The optimisers' programs differ, and what decides is where their tensors are and of which dtype.
_PROGRAM: Final = '["lerp",["x0","x1","x2"],{}]\n"%0"'


class ReroutedSteps:
    """The steps of an optimiser, computed by ours where the registry prefers that.

    Args:
        optimizer: its parameters, groups and state stay its own; hooks of its steps are called.
        calls: counts its steps.
        verify: compare each step with torch's.

    Raises:
        ValueError: its steps are none that ours compute, or were replaced already.
    """

    def __init__(self, optimizer: Optimizer, calls: Calls, *, verify: bool) -> None:
        name = type(optimizer).__name__
        if type(optimizer) not in _OURS:
            known = ", ".join(kind.__name__ for kind in _OURS)
            raise ValueError(
                f"reroute: model: expected an optimiser of torch.optim: {known}; got {name}"
            )
        if "step" in vars(optimizer):
            raise ValueError(
                f"reroute: model: expected the {name} with its own step, got one whose step was "
                f"replaced, as by a scheduler; reroute it before, and once"
            )
        self._optimizer: Optimizer | None = optimizer
        self._calls = calls
        self._verify = verify
        self._ours: Any = None

        def step(optimizer: Optimizer, closure: _Closure = None) -> Any:
            return self._step(optimizer, closure)

        self._installed = types.MethodType(Optimizer.profile_hook_step(step), optimizer)
        optimizer.step = self._installed  # type: ignore[method-assign]

    def remove(self) -> None:
        """Let torch compute the steps again."""
        optimizer, self._optimizer = self._optimizer, None
        # A scheduler may have put its own around it, which calls it further on.
        if optimizer is not None and vars(optimizer).get("step") is self._installed:
            del optimizer.step

    def _step(self, optimizer: Optimizer, closure: _Closure) -> Any:
        if self._optimizer is None or torch.compiler.is_compiling():
            return _own_step(optimizer, closure)
        name = f"{type(optimizer).__name__}.step"
        form: Any = None
        try:
            if closure is not None:
                raise LeftAlone("a closure computes the gradients inside of the step")
            forms = _forms(optimizer)
            form = tuple(forms)
            chosen = [choice(_rerouting(*one)) for one in forms]
        except LeftAlone as why:
            self._calls.note(name, form, "", str(why))
            return _own_step(optimizer, closure)
        if not chosen:
            return _own_step(optimizer, closure)
        for implementation, reason in dict.fromkeys(chosen):
            self._calls.note(name, form, implementation, reason)
        if not self._verify:
            return self._run(optimizer)
        own, exact = _copied(optimizer, None), _copied(optimizer, torch.float64)
        found = self._run(optimizer)
        for one in (own, exact):
            _own_step(one, None)
        for right, theirs, ours in zip(*map(_parameters, (exact, own, optimizer)), strict=True):
            compare(name, right, theirs, ours)
        return found

    def _run(self, optimizer: Optimizer) -> Any:
        from torchyard_kernels import optim

        if self._ours is None:
            kind = getattr(optim, _OURS[type(optimizer)])
            self._ours = kind([dict(group) for group in optimizer.param_groups])
        # Loading a state replaces both.
        self._ours.param_groups = optimizer.param_groups
        self._ours.state = optimizer.state
        # Hooks were called by the wrapper around this step.
        with torch.no_grad():
            return unwrap(type(self._ours).step)(self._ours)


def note_step(optimizer: Optimizer, calls: Calls) -> None:
    """Note a step that ours could compute and torch does, as it calls no function of torch's."""
    if type(optimizer) in _OURS and not _is_rerouted(optimizer):
        calls.note(
            *(f"{type(optimizer).__name__}.step", None, ""),
            "a step is no function of torch's: write reroute(optimizer)",
        )


def _is_rerouted(optimizer: Optimizer) -> bool:
    step = unwrap(getattr(optimizer.step, "__func__", optimizer.step))
    return bool(step.__module__ == __name__)


def _own_step(optimizer: Optimizer, closure: _Closure) -> Any:
    # Without the hooks, which the wrapper around the rerouted step calls.
    own: Any = type(optimizer).step
    return own.__wrapped__(optimizer, closure)


def _forms(optimizer: Optimizer) -> list[tuple[str, str, int]]:
    """Return (device, dtype, how many) of the parameters that a step moves.

    Raises:
        LeftAlone: ours compute the step otherwise, or not.
    """
    check_installed("torchyard_kernels")
    # What torch.amp.GradScaler hands to a fused step.
    if getattr(optimizer, "grad_scale", None) is not None or (
        getattr(optimizer, "found_inf", None) is not None
    ):
        raise LeftAlone("a scaler of gradients takes part in the step")
    counts: dict[tuple[str, str], int] = {}
    for group in optimizer.param_groups:
        for option in ("capturable", "differentiable"):
            if group.get(option):
                raise LeftAlone(f"{option}: ours read counters on the host, and record nothing")
        if _OURS[type(optimizer)] == "AdamW" and (
            group["weight_decay"] and not group.get("decoupled_weight_decay")
        ):
            raise LeftAlone("weight_decay that is added to gradients, as Adam's is")
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            check_plain(parameter, gradient)
            if parameter.is_complex() or gradient.dtype != parameter.dtype:
                raise LeftAlone(f"a {parameter.dtype} parameter with a {gradient.dtype} gradient")
            if group.get("fused") and parameter.device.type != "cpu":
                raise LeftAlone("fused: its counters are on the device, and ours read them")
            key = parameter.device.type, str(parameter.dtype)[6:]
            counts[key] = counts.get(key, 0) + 1
    return [(device, dtype, count) for (device, dtype), count in counts.items()]


def _rerouting(device: str, dtype: str, count: int) -> Rerouting:
    from torchyard_kernels.pointwise.contract import POINTWISE, PointwiseRequest

    inputs = (dtype, 1), (dtype, 1), ("float", -1)
    request = PointwiseRequest(device, _PROGRAM, inputs, out=(dtype,), groups=count)
    return Rerouting(
        ("optimizer", request), lambda: registry().decide(POINTWISE, request), lambda: None
    )


def _copied(optimizer: Optimizer, dtype: torch.dtype | None) -> Optimizer:
    """Return an optimiser of copies of the parameters, gradients and state, perhaps wider."""
    copies: dict[Tensor, Tensor] = {}

    def copied(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().to(dtype or tensor.dtype)

    for parameter in _parameters(optimizer):
        copies[parameter] = copied(parameter)
        if parameter.grad is not None:
            copies[parameter].grad = copied(parameter.grad)
    groups = [
        {**group, "params": [copies[parameter] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    kind: Any = type(optimizer)
    made: Optimizer = kind(groups)
    for parameter, state in optimizer.state.items():
        made.state[copies[parameter]] = {
            name: value if not isinstance(value, Tensor) else _copied_state(name, value, copied)
            for name, value in state.items()
        }
    return made


def _copied_state(name: str, value: Tensor, copied: Callable[[Tensor], Tensor]) -> Tensor:
    return value.clone() if name == "step" else copied(value)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
