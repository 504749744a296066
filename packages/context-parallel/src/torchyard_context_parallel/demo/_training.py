"""Steps of training: in one process, and in one of several that share each sequence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from torchyard_attention import create_block_mask, flex_attention, masks
from torchyard_attention.demo import (
    Attend,
    Size,
    Slopes,
    Text,
    Transformer,
    make_optimizer,
    seeded_model,
)
from torchyard_context_parallel._api import context_parallel_attention
from torchyard_context_parallel._sharding import Sharding

_CLIP = 1.0
_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Plan:
    """What every process is given.

    Attributes:
        size: the model's sizes.
        steps: how many to train.
        seed: of weights and batches.
        schedule: of the spread attention.
    """

    size: Size
    steps: int
    seed: int
    schedule: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step's outcome: the loss in nats per byte, and how long it took."""

    loss: float
    seconds: float


def train_alone(plan: Plan, text: Text, tell: Callable[[Step], None]) -> list[Step]:
    """Train in this process."""
    size = plan.size
    mask = create_block_mask(
        masks.sliding_window(size.window), None, None, size.length, size.length, "cpu", _BLOCK
    )
    alibi = _alibi(size)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out: Tensor = flex_attention(query, key, value, alibi, mask)
        return out

    return _train(plan, text, attend, Sharding.contiguous(size.length, 1), 0, tell)


def train_together(plan: Plan, text: Text, tell: Callable[[Step], None]) -> list[Step]:
    """Train as one of the ranks of the default group; all of them return the same losses."""
    size, world = plan.size, dist.group.WORLD
    assert world is not None
    sharding = Sharding.contiguous(size.length, world.size(), multiple=_BLOCK)
    mask = create_block_mask(
        masks.sliding_window(size.window), None, None, size.length, size.length, "cpu", _BLOCK
    )
    alibi = _alibi(size)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out: Tensor = context_parallel_attention(
            query,
            key,
            value,
            mesh=world,
            score_mod=alibi,
            block_mask=mask,
            schedule=plan.schedule,
            sharding=sharding,
        )
        return out

    return _train(plan, text, attend, sharding, world.rank(), tell)


def _train(
    plan: Plan,
    text: Text,
    attend: Attend,
    sharding: Sharding,
    part: int,
    tell: Callable[[Step], None],
) -> list[Step]:
    size = plan.size
    model = seeded_model(size, plan.seed, torch.device("cpu"))
    optimizer = make_optimizer(model)
    generator = torch.Generator().manual_seed(plan.seed)
    done = []
    for _ in range(plan.steps):
        # Every rank draws the same batch, and keeps its positions of it.
        batch = text.batch(size.batch, size.length, generator)
        started = time.perf_counter()
        tokens, labels = (sharding.take(b, part, 1) for b in (batch[:, :-1], batch[:, 1:]))
        loss = _take_step(model, optimizer, tokens, labels, size, attend)
        done.append(Step(loss, time.perf_counter() - started))
        tell(done[-1])
    return done


def _take_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    labels: Tensor,
    size: Size,
    attend: Attend,
) -> float:
    logits = model(tokens, attend).flatten(0, 1)
    total = functional.cross_entropy(logits, labels.flatten(), reduction="sum")
    loss = total / (size.batch * size.length)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    found = loss.detach()
    if dist.is_initialized():
        # Each rank's loss is a term of the sum, so gradients are summed and not averaged.
        for tensor in (found, *(p.grad for p in model.parameters() if p.grad is not None)):
            dist.all_reduce(tensor)
    torch.nn.utils.clip_grad_norm_(model.parameters(), _CLIP)
    optimizer.step()
    return float(found)


def _alibi(size: Size) -> Callable[..., Any]:
    slopes = Slopes.of(size, torch.device("cpu")).heads
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)
