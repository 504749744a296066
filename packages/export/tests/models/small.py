"""Small models for tests, and a factory for the command line."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Scorer(nn.Module):
    """A layer over each step, and a mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        steps = self.layer(x) * scale
        return {"steps": steps, "mean": steps.mean(1)}


def scorer() -> Scorer:
    """Return one with weights that are always the same."""
    torch.manual_seed(0)
    return Scorer().eval()


def factory() -> dict[str, Any]:
    """Return what the command line exports in tests."""
    torch.manual_seed(1)
    return {
        "model": scorer(),
        "args": (torch.randn(2, 5, 4),),
        "dynamic": {"x": {0: "batch:1..8", 1: "time:1..16"}},
    }


def training() -> dict[str, Any]:
    """Return a model that is not in evaluation mode."""
    return {**factory(), "model": scorer().train()}


def fixed() -> tuple[nn.Module, tuple[Tensor]]:
    """Return a model and a call."""
    return scorer(), (torch.randn(2, 5, 4),)


def bare() -> tuple[nn.Module, Tensor]:
    """Return a tensor in the place of a call's arguments."""
    return scorer(), torch.randn(2, 5, 4)


def failing() -> None:
    """Raise as a factory without its weights does."""
    raise OSError("no weights")


WEIGHTED = scorer()
