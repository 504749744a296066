"""An encoder with its published weights, a CNN trained here, a decoder: to be quantized."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from benchmarks.models.embedding import load, sources, tokens

__all__ = ["MODELS", "Subject"]

_CLASSES: Final = 10
_SIDE: Final = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and calls of it.

    Attributes:
        model: float32, in evaluation mode.
        calibration, evaluation: calls, all of one size.
        labels: the right class of each row of ``evaluation``; None where there is none.
    """

    model: nn.Module
    calibration: Sequence[tuple[Tensor, ...]]
    evaluation: Sequence[tuple[Tensor, ...]]
    labels: list[Tensor] | None = None


class _Embedding(nn.Module):
    """all-MiniLM-L6-v2, and the mean over tokens: int64 [B, S] twice -> float32 [B, 384]."""

    def __init__(self) -> None:
        super().__init__()
        self.model = load("sdpa")

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        found: Any = self.model(input_ids=input_ids, attention_mask=attention_mask)
        listed = attention_mask[..., None]
        mean = (found.last_hidden_state * listed).sum(1) / listed.sum(1)
        return F.normalize(mean, dim=1)


class _Decoder(nn.Module):
    """A Llama of random weights: int64 [B, S] -> float32 [B, S, 8000]."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.LlamaConfig(
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            vocab_size=8000,
        )
        self.model = transformers.AutoModelForCausalLM.from_config(config).eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=input_ids, use_cache=False).logits
        return logits


class _Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outer)
        self.short: nn.Module = nn.Identity()
        if inner != outer or stride != 1:
            conv = nn.Conv2d(inner, outer, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(inside)) + self.short(x))


def _encoder() -> Subject:
    made = tokens(sources(96))
    calls = [
        (made["input_ids"][row : row + 8], made["attention_mask"][row : row + 8])
        for row in range(0, 96, 8)
    ]
    return Subject(_Embedding().eval(), calls[:8], calls[8:])


def _decoder() -> Subject:
    generator = torch.Generator().manual_seed(1)
    calls = [(torch.randint(8000, (2, 128), generator=generator),) for _ in range(8)]
    return Subject(_Decoder().eval(), calls[:4], calls[4:])


def _cnn() -> Subject:
    """Return a residual network, trained to tell ten patterns shifted and under noise."""
    generator = torch.Generator().manual_seed(2)
    patterns = F.interpolate(
        torch.randn(_CLASSES, 3, 8, 8, generator=generator), size=_SIDE, mode="bilinear"
    )

    def batch(rows: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(_CLASSES, (rows,), generator=generator)
        steps = torch.randint(_SIDE, (rows, 2), generator=generator).tolist()
        shifted = [
            patterns[label].roll(step, (1, 2))
            for label, step in zip(labels.tolist(), steps, strict=True)
        ]
        noise = 1.2 * torch.randn(rows, 3, _SIDE, _SIDE, generator=generator)
        return torch.stack(shifted) + noise, labels

    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(_Block(32, 32, 1), _Block(32, 64, 2), _Block(64, 128, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, _CLASSES)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(80):
        x, labels = batch(32)
        optimizer.zero_grad()
        loss: Any = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
    judged = [batch(32) for _ in range(24)]
    calibration = [(batch(32)[0],) for _ in range(8)]
    return Subject(
        model.eval(), calibration, [(x,) for x, _ in judged], [labels for _, labels in judged]
    )


MODELS: Final[dict[str, Callable[[], Subject]]] = {
    "MiniLM": _encoder,
    "ResNet-like": _cnn,
    "Llama-like": _decoder,
}
