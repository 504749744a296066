"""A model that says how long its calls take, and optimizations that change that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from torchyard import Plugin, PluginSource
from torchyard.optimization import (
    Applied,
    Optimization,
    OptimizationStage,
    Report,
    TrialOutcome,
    Variant,
)

__all__ = [
    "FAST",
    "FASTER",
    "SLOW",
    "Delayed",
    "delayed",
    "example",
    "offer",
    "outcomes",
    "plugin",
    "setting",
    "variant",
]

# Seconds.
SLOW, FAST, FASTER = 8e-3, 3e-3, 1e-3


class Delayed(nn.Module):
    """A linear layer whose calls count as taking ``delay`` seconds; see ``offering``."""

    def __init__(self, delay: float = SLOW) -> None:
        super().__init__()
        self.delay = delay
        self.layer = nn.Linear(4, 3)
        self.register_buffer("spare", torch.zeros(10))

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        found: Tensor = self.layer(x)
        return found


def delayed(delay: float = SLOW) -> Delayed:
    """Return a model, in evaluation, with the same weights each time."""
    torch.manual_seed(0)
    return Delayed(delay).eval()


def outcomes(report: Report | None) -> dict[str, TrialOutcome]:
    """Return what came of each trial, by its optimization and variant."""
    assert report is not None
    return {
        f"{trial.optimization} {trial.variant}".rstrip()
        + (" alone" if trial.alone else ""): trial.outcome
        for trial in report.trials
    }


def setting(module: nn.Module, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute; return what puts the old one back."""
    before = getattr(module, name)
    setattr(module, name, value)
    return partial(setattr, module, name, before)


def variant(
    name: str = "one",
    *,
    delay: float | None = None,
    shift: float = 0.0,
    lossy: bool = False,
    freed: int = 0,
) -> Callable[[nn.Module], Variant]:
    """Return what makes a variant for a model.

    Args:
        delay: that the model then has; None: as it is.
        shift: added to its bias.
        freed: bytes by which its spare tensor becomes smaller, at most 40.
    """

    def make(model: nn.Module) -> Variant:
        assert isinstance(model, Delayed)

        def apply(keep: bool) -> Applied:
            undos = [setting(model, "delay", model.delay if delay is None else delay)]
            if freed:
                undos.append(setting(model, "spare", torch.zeros(10 - freed // 4)))
            if shift:
                bias = nn.Parameter(model.layer.bias.detach() + shift)
                undos.append(setting(model.layer, "bias", bias))

            def undo() -> None:
                for one in undos:
                    one()

            return Applied(undo, freed if keep else 0)

        return Variant(name, apply, lossy)

    return make


def offer(
    name: str,
    *variants: Callable[[nn.Module], Variant],
    stage: OptimizationStage = OptimizationStage.WEIGHTS,
) -> Optimization:
    """Return an optimization with variants."""

    def found(model: nn.Module) -> Sequence[Variant]:
        return [make(model) for make in variants]

    return Optimization(name, stage, f"{name} of a toy", found)


def plugin(name: str = "toy", version: str = "1.0") -> Plugin:
    """Return the plugin that offers them."""
    return Plugin(PluginSource(name, f"yard_{name}:torchyard.toml", f"yard-{name}", version))


def example() -> Tensor:
    """Return the input."""
    return torch.arange(8.0).reshape(2, 4)
