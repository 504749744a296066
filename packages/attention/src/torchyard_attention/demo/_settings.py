"""The settings of a run of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Size:
    """The model and its batches.

    Attributes:
        layers, heads: of the transformer.
        head_dim: of each head; the model's width is heads * head_dim.
        length: bytes per training sequence.
        window: how many bytes a position sees, itself among them.
        batch: sequences per step.
    """

    layers: int = 2
    heads: int = 8
    head_dim: int = 32
    length: int = 1024
    window: int = 128
    batch: int = 2

    @property
    def width(self) -> int:
        """The model's width."""
        return self.heads * self.head_dim


@dataclass(frozen=True, slots=True)
class Budget:
    """How long the parts of a run may take.

    Attributes:
        train_seconds: for training; its last step may end later.
        steps: train exactly so many steps instead; None: as many as fit.
        evaluations: how often the held-out loss is taken on the way.
        compare_seconds: for the comparison of training steps, and again for that of generation.
        rounds: the most rounds of each comparison; at least three are run.
        generate: bytes that the prompt is continued by, or as many as fit write_seconds.
        write_seconds: see there.
    """

    train_seconds: float = 90.0
    steps: int | None = None
    evaluations: int = 10
    compare_seconds: float = 12.0
    rounds: int = 9
    generate: int = 400
    write_seconds: float = 5.0


FULL = Budget()
QUICK = Budget(train_seconds=22.0, evaluations=5, compare_seconds=5.0, rounds=5, generate=160)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a run.

    Attributes:
        text: a file or a folder; None: this Python's own standard library.
        device: where it runs.
        dtype: of the matrix products; parameters stay float32.
        seed: of the weights, the batches and the samples.
        prompt: what is continued.
        out: the folder for the curve and the plot.
        size: the model.
        budget: how long it may take.
    """

    text: Path | None
    device: torch.device
    dtype: torch.dtype
    seed: int
    prompt: str
    out: Path
    size: Size
    budget: Budget
