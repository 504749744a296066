"""Training: steps of AdamW on random sequences, and the curve that they draw."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchyard_attention.demo._model import Transformer
from torchyard_attention.demo._settings import Settings
from torchyard_attention.demo._text import Text
from torchyard_attention.demo._ways import Way

_RATE = 3e-3
_WARM_UP_STEPS = 20
_LAST_RATE = 0.05
_BETAS = (0.9, 0.95)
_DECAY = 0.1
_CLIP = 1.0
_JUDGED_SEQUENCES = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training is.

    Attributes:
        share: from 0 to 1.
        step: steps done.
        loss: the last step's, in nats per byte.
        bytes_per_second: over the steps alone, without evaluations.
    """

    share: float
    step: int
    loss: float
    bytes_per_second: float


@dataclass(slots=True)
class Curve:
    """What training was like. Losses are in nats per byte.

    Attributes:
        train: (step, loss) of every step's batch, from step 1 on.
        held_out: (step, loss), first before any step and last after all.
        step_seconds: of every step.
        seconds: of everything, evaluations included.
    """

    train: list[tuple[int, float]] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def smoothed(self, share: float) -> float:
        """Return the mean training loss of the first (share > 0) or last part of the steps."""
        count = max(1, round(abs(share) * len(self.train)))
        part = self.train[:count] if share > 0 else self.train[-count:]
        return sum(loss for _, loss in part) / len(part)


def computing(settings: Settings) -> contextlib.AbstractContextManager[object]:
    """Return the context in which matrix products have the settings' dtype."""
    if settings.dtype.itemsize >= torch.float32.itemsize:
        return contextlib.nullcontext()
    return torch.autocast(settings.device.type, dtype=settings.dtype)


def wait_for(device: torch.device) -> None:
    """Return when the device has done all work that it was given."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None and accelerator.type == device.type:
        torch.accelerator.synchronize()


def make_optimizer(model: Transformer) -> torch.optim.Optimizer:
    """Return AdamW, fused where the device has that; only matrices decay."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    groups = [
        {"params": matrices, "weight_decay": _DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    try:
        return torch.optim.AdamW(groups, lr=_RATE, betas=_BETAS, fused=True)
    except RuntimeError:
        return torch.optim.AdamW(groups, lr=_RATE, betas=_BETAS)


def take_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    batch: Tensor,
    way: Way,
    settings: Settings,
) -> Tensor:
    """Learn from one batch [B, S + 1]; return its loss, detached."""
    with computing(settings):
        loss = model.loss(batch, way.whole(batch.shape[1] - 1))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()
    return loss.detach()


@torch.no_grad()
def judge(model: Transformer, text: Text, way: Way, settings: Settings) -> float:
    """Return the loss on the held-out sequences."""
    size = settings.size
    losses = []
    sequences = text.judged(_JUDGED_SEQUENCES, size.length)
    for part in torch.split(sequences, size.batch):
        with computing(settings):
            loss = model.loss(part.to(settings.device), way.whole(size.length))
        losses.append(float(loss) * len(part))
    return sum(losses) / len(sequences)


def train(
    model: Transformer,
    text: Text,
    way: Way,
    settings: Settings,
    tell: Callable[[Progress], None],
) -> Curve:
    """Train the model in place for the settings' seconds, or for exactly their steps.

    The rate warms up, then falls with a cosine over the share of the budget that is used up.
    """
    size, budget = settings.size, settings.budget
    curve, optimizer = Curve(), make_optimizer(model)
    generator = torch.Generator().manual_seed(settings.seed)
    started = time.perf_counter()
    curve.held_out.append((0, judge(model, text, way, settings)))
    step, share, judged = 0, 0.0, 1
    while share < 1.0:
        batch = text.batch(size.batch, size.length, generator).to(settings.device)
        rate = _RATE * _schedule(step, share)
        for group in optimizer.param_groups:
            group["lr"] = rate
        before = time.perf_counter()
        loss = float(take_step(model, optimizer, batch, way, settings))
        wait_for(settings.device)
        curve.step_seconds.append(time.perf_counter() - before)
        step += 1
        curve.train.append((step, loss))
        elapsed = time.perf_counter() - started
        if budget.steps is not None:
            share = step / budget.steps
        else:
            share = min(1.0, elapsed / budget.train_seconds)
        pace = size.batch * size.length * step / sum(curve.step_seconds)
        tell(Progress(share, step, loss, pace))
        if not math.isfinite(loss):
            break
        if share < 1.0 and share * budget.evaluations >= judged:
            judged = math.floor(share * budget.evaluations) + 1
            curve.held_out.append((step, judge(model, text, way, settings)))
    curve.held_out.append((step, judge(model, text, way, settings)))
    curve.seconds = time.perf_counter() - started
    return curve


def _schedule(step: int, share: float) -> float:
    warm = min(1.0, (step + 1) / _WARM_UP_STEPS)
    return warm * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * share)))
