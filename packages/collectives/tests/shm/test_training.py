"""DTensor, DDP and FSDP2 train the demo's model on two processes as one process does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from packages.collectives.tests.ranks import run_ranks
from torchyard_attention.demo._model import Transformer, seeded_model
from torchyard_attention.demo._settings import Size

_SIZE = Size(layers=2, heads=4, head_dim=16, length=64, window=64, batch=4)
_STEPS = 4


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


def _model() -> Transformer:
    return seeded_model(_SIZE, seed=0, device=torch.device("cpu"))


def _batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (_STEPS, _SIZE.batch, _SIZE.length + 1)
    # Words of few letters, so that there is something to learn.
    return list(torch.randint(97, 105, shape, generator=generator))


def _losses(model: nn.Module, share: Callable[[Tensor], Tensor]) -> list[float]:
    """Train, and return each step's loss of this rank's share of the batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    losses = []
    for batch in _batches():
        mine = share(batch)
        logits = model(mine[:, :-1], _attend)
        loss = functional.cross_entropy(logits.flatten(0, 1), mine[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


def _of_rank(batch: Tensor) -> Tensor:
    return batch.chunk(dist.get_world_size())[dist.get_rank()]


def _averaged(losses: list[float]) -> list[float]:
    tensor = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(tensor)
    return (tensor / dist.get_world_size()).tolist()


def _ddp() -> list[float]:
    # Small buckets, so that several are under way at once.
    model = DistributedDataParallel(_model(), bucket_cap_mb=0.05)
    return _averaged(_losses(model, _of_rank))


def _fsdp() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = _model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return _averaged(_losses(fully_shard(model, mesh=mesh), _of_rank))


def _dtensor() -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = _model()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _losses(model, lambda batch: batch)


@pytest.mark.sweep
@pytest.mark.parametrize("backend", ["gloo", "shm"])
@pytest.mark.parametrize("train", [_ddp, _fsdp, _dtensor], ids=["ddp", "fsdp2", "dtensor"])
def test_two_processes_train_as_one_does(train: Callable[[], list[float]], backend: str) -> None:
    expected = torch.tensor(_losses(_model(), lambda batch: batch), dtype=torch.float64)
    assert expected[-1] < expected[0] - 0.05
    for found in run_ranks(2, train, backend=backend):
        # Sums over halves of a batch, in float32, differ in the last bits, and Adam's first steps
        # take the sign of gradients near 0.
        torch.testing.assert_close(
            torch.tensor(found, dtype=torch.float64), expected, rtol=2e-5, atol=0
        )
