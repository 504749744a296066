"""Small models that quantize, with calls that calibrate them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchyard_export import Quantized, quantize

BATCH = {"x": {0: "batch:1..32"}}


class Perceptron(nn.Module):
    """Two layers; the second's inputs are all positive."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.classes = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.classes(torch.relu(self.inner(x)))
        return found


class Picture(nn.Module):
    """Convolutions with batch norm, a residual, pooling, and scores by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.classes = nn.Linear(8, 5)

    def forward(self, x: Tensor, *, bias: Tensor) -> dict[str, Tensor]:
        first = torch.relu(self.norm(self.first(x)))
        both = self.pool(torch.relu(self.second(first) + first))
        return {"scores": self.classes(both.mean((2, 3))) + bias}


def perceptron() -> Perceptron:
    """Return one with weights that are always the same; its channels differ in size."""
    torch.manual_seed(0)
    model = Perceptron().eval()
    with torch.no_grad():
        model.inner.weight.mul_(torch.logspace(-2, 0, 32)[:, None])
    return model


def picture() -> Picture:
    """Return one with weights and statistics that are always the same."""
    torch.manual_seed(0)
    model = Picture()
    for _ in range(3):
        model(torch.randn(8, 3, 8, 8) + 0.5, bias=torch.zeros(5))
    return model.eval()


def rows(*counts: int) -> list[tuple[Tensor]]:
    """Return calls of a perceptron."""
    torch.manual_seed(1)
    return [(torch.randn(count, 16),) for count in counts]


def pictures(*counts: int) -> list[dict[str, Tensor]]:
    """Return calls of a picture by name."""
    torch.manual_seed(1)
    return [{"x": torch.randn(count, 3, 8, 8), "bias": torch.ones(5)} for count in counts]


def quantized(**options: Any) -> Quantized:
    """Return a quantized perceptron of any batch."""
    given = {"calibration": rows(4, 7, 9), "dynamic": BATCH, **options}
    return quantize(perceptron(), rows(4)[0], **given)


def factory() -> dict[str, Any]:
    """Return what the command line quantizes in tests."""
    return {
        "model": perceptron(),
        "args": rows(4)[0],
        "dynamic": BATCH,
        "calibration": rows(4, 7),
        "evaluation": rows(5),
        "keep": ["inner"],
    }
