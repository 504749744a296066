"""accelerate and transformers' Trainer on a group that was made before: trained as on gloo."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from packages.collectives.tests.ranks import run_ranks


@contextmanager
def _launched() -> Iterator[None]:
    """Let this rank look as if a launcher had started it, to a library that asks for that."""
    from accelerate.state import AcceleratorState, PartialState

    rank, size = str(dist.get_rank()), str(dist.get_world_size())
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    before = dict(os.environ)
    os.environ.update(told, ACCELERATE_USE_CPU="1", OMP_NUM_THREADS="1")
    try:
        yield
    finally:
        # It keeps what it found for as long as the process runs.
        AcceleratorState._reset_state()
        PartialState._reset_state()
        os.environ.clear()
        os.environ.update(before)


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(22, 6, generator=generator), torch.randn(22, 1, generator=generator)


def _accelerated() -> list[Tensor]:
    """Train by the loop that accelerate's manual shows."""
    with _launched():
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        assert accelerator.num_processes == dist.get_world_size() == 2
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        batches = DataLoader(TensorDataset(*_data()), batch_size=3)
        model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
        assert isinstance(model, DistributedDataParallel)
        seen = []
        for x, y in batches:
            with accelerator.accumulate(model):
                out = model(x)
                accelerator.backward((out - y).square().mean())
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            seen.append(accelerator.gather_for_metrics(out.detach()))
        # Of 22 samples the last batches repeat some, which are left out again.
        assert sum(map(len, seen)) == 22
        texts = accelerator.gather_for_metrics([f"rank {dist.get_rank()}"], use_gather_object=True)
        assert texts == ["rank 0", "rank 1"]
        accelerator.wait_for_everyone()
        mean = accelerator.reduce(torch.tensor(float(dist.get_rank())), reduction="mean")
        trained = [p.detach() for p in model.parameters()]
        return [*trained, *seen, mean]


class _Model(nn.Module):
    """A model as Trainer wants it: the loss is its first result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "out": out}


def _by_trainer(folder: str) -> list[Tensor]:
    with _launched():
        from transformers import Trainer, TrainingArguments

        torch.manual_seed(0)
        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, max_steps=3, per_device_train_batch_size=3,
            per_device_eval_batch_size=4, learning_rate=0.1, report_to=[], save_strategy="no",
            disable_tqdm=True, seed=5,
        )  # fmt: skip
        rows = [{"x": x, "labels": y} for x, y in zip(*_data(), strict=True)]
        trainer = Trainer(_Model(), arguments, train_dataset=rows, eval_dataset=rows)  # type: ignore[arg-type]
        assert trainer.accelerator.num_processes == arguments.world_size == 2
        loss = trainer.train().training_loss
        assert isinstance(trainer.model_wrapped, DistributedDataParallel)
        found = trainer.predict(rows)  # type: ignore[arg-type]
        assert len(found.predictions) == 22
        weights = [p.detach() for p in trainer.model.parameters()]
        return [*weights, torch.from_numpy(found.predictions), torch.tensor(loss)]


def _compare(train: Callable[..., list[Tensor]], *args: str) -> None:
    expected = run_ranks(2, train, *args, backend="gloo")
    for theirs, ours in zip(expected, run_ranks(2, train, *args, backend="shm"), strict=True):
        # Sums of two numbers, whose order does not matter.
        assert len(theirs) == len(ours) > 3
        assert all(map(torch.equal, theirs, ours))


def test_accelerate_uses_a_group_that_is_there_and_trains_as_on_gloo() -> None:
    _compare(_accelerated)


# Importing Trainer takes each process several seconds.
@pytest.mark.sweep
def test_trainer_uses_a_group_that_is_there_and_trains_as_on_gloo(tmp_path: Path) -> None:
    _compare(_by_trainer, str(tmp_path))
