"""Models without a change for context parallelism compute the same on ranks as in one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from packages.collectives.tests.ranks import run_ranks
from torchyard_context_parallel import Sharding, context_parallel, position_ids, shard

LENGTH, WORDS, WIDTH = 300, 50, 32


class _Model(nn.Module):
    """A small causal transformer that calls torch's attention, with positions as an input."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(places)
        for projection in self.projections:
            heads = projection(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            attended = scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
            x = x + attended.transpose(1, 2).flatten(2)
        logits: Tensor = self.head(x)
        return logits


def _setting() -> tuple[_Model, Tensor, Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(WORDS, (2, LENGTH + 1))
    return _Model(), tokens[:, :-1], tokens[:, 1:]


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / (2 * LENGTH)


def _trained(schedule: str) -> list[Tensor]:
    """Return this rank's logits, the summed loss and the summed gradients."""
    model, tokens, labels = _setting()
    world = dist.group.WORLD
    dealt = Sharding.head_tail(LENGTH, dist.get_world_size(), multiple=128)
    with context_parallel(world, dealt, schedule=schedule):
        logits = model(shard(tokens, dealt, mesh=world), position_ids(dealt, mesh=world))
        loss = _loss(logits, shard(labels, dealt, mesh=world))
        loss.backward()
    grads = [parameter.grad for parameter in model.parameters()]
    sums = [loss.detach(), *(grad for grad in grads if grad is not None)]
    for total in sums:
        dist.all_reduce(total)
    return [logits.detach(), dealt.positions(dist.get_rank()), *sums]


@pytest.mark.parametrize("schedule", ["ring", "allgather", "ulysses"])
def test_a_model_trains_as_in_one_process(schedule: str) -> None:
    model, tokens, labels = _setting()
    expected = model(tokens, torch.arange(LENGTH))
    loss = _loss(expected, labels)
    loss.backward()
    wanted = [loss.detach(), *(p.grad for p in model.parameters())]
    for logits, at, *sums in run_ranks(2, _trained, schedule):
        torch.testing.assert_close(logits, expected.detach()[:, at], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(sums, wanted, rtol=1e-4, atol=1e-5)


def _entered(refusing: int) -> str:
    """Return what a rank raises where one of them enters with no sharding."""
    world, rank = dist.group.WORLD, dist.get_rank()
    dealt = Sharding.contiguous(8, dist.get_world_size())
    given = None if rank == refusing else dealt
    x = torch.ones(1, 1, dealt.lengths[rank], 8)
    with (
        pytest.raises(TypeError) as caught,
        context_parallel(world, given),  # type: ignore[arg-type]
    ):
        scaled_dot_product_attention(x, x, x)
    return str(caught.value)


def test_a_context_that_one_rank_enters_wrongly_is_refused_on_every_rank() -> None:
    for found in run_ranks(2, _entered, 1):
        assert found == (
            "context_parallel: sharding: expected Sharding, got None (rank 1 refused; all ranks "
            "stop)"
        )
