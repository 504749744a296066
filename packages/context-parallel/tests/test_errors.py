"""What does not fit is refused by name, on every rank, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import scaled_dot_product_attention

from packages.collectives.tests.ranks import run_ranks
from torchyard import TransformError
from torchyard_attention import BlockMask, DoubleBackwardError, create_block_mask, masks
from torchyard_context_parallel import (
    Sharding,
    context_parallel,
    context_parallel_attention,
    position_ids,
    shard,
    unshard,
)

LENGTH = 64
SHARDING = Sharding.contiguous(LENGTH, 2)


def _mask(length: int, heads: int | None = None) -> BlockMask:
    return create_block_mask(masks.causal, None, heads, length, length, "cpu", 16)


def _without_function() -> BlockMask:
    mask = _mask(LENGTH)
    return BlockMask.from_kv_blocks(
        mask.kv_num_blocks,
        mask.kv_indices,
        BLOCK_SIZE=16,
        seq_lengths=(LENGTH, LENGTH),
    )


def _changed() -> BlockMask:
    sizes = torch.tensor(3)
    mask = create_block_mask(
        lambda b, h, q, k: q - k < sizes, None, None, LENGTH, LENGTH, "cpu", 16
    )
    sizes += 1
    return mask


WRONG: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "schedule": (lambda: {"schedule": "star"}, "schedule: expected one of ring, allgather, ulys"),
    "mesh": (lambda: {"mesh": "cp"}, "mesh: expected a DeviceMesh or a ProcessGroup, got str"),
    "dimensions": (
        lambda: {"mesh": init_device_mesh("cpu", (2, 1))},
        "mesh: expected 1 dimension for this schedule, got 2",
    ),
    "hybrid": (lambda: {"schedule": "hybrid"}, "mesh: expected 2 dimensions for this schedule"),
    "heads": (
        lambda: {"schedule": "ulysses", "query": torch.zeros(1, 3, 32, 8)},
        "mesh: expected ranks that divide 3 query heads over 3 key heads",
    ),
    "rank": (lambda: {"query": torch.zeros(3, 32, 8)}, r"query: expected \[batch, heads, length"),
    "dtype": (lambda: {"key": torch.zeros(1, 3, 32, 8).double()}, "key: expected torch.float32"),
    "value": (lambda: {"value": torch.zeros(1, 3, 31, 8)}, "value: expected batch, heads and len"),
    "size": (lambda: {"query": torch.zeros(1, 3, 32, 4)}, "key: expected size 4, as query, got 8"),
    "groups": (lambda: {"query": torch.zeros(1, 4, 32, 8)}, "key: expected heads that divide"),
    "length": (
        lambda: {"sharding": Sharding.of_lengths([30, 34])},
        "query: expected the 3[04] positions that the sharding gives part [01], got 32",
    ),
    "parts": (
        lambda: {"sharding": Sharding.contiguous(LENGTH, 3)},
        "query's sharding: expected 2 parts, got 3",
    ),
    "mask": (
        lambda: {"block_mask": _mask(32)},
        "block_mask: expected the whole sequence's, 64 queries and 64 keys, got 32 and 32",
    ),
    "mask heads": (lambda: {"block_mask": _mask(LENGTH, 2)}, "block_mask: expected batch 1 or 1"),
    "cut blocks": (
        lambda: {
            "block_mask": _without_function(),
            "sharding": (dealt := Sharding.of_lengths([30, 34])),
            **{
                name: torch.zeros(1, 3, dealt.lengths[dist.get_rank()], 8)
                for name in ("query", "key", "value")
            },
        },
        "block_mask: expected queries in ranges along its blocks of 16, or a mask that knows",
    ),
    "changed": (lambda: {"block_mask": _changed()}, "was changed in place since the mask was made"),
}


def _attend(name: str) -> None:
    given: dict[str, Any] = {key: torch.randn(1, 3, 32, 8) for key in ("query", "key", "value")}
    given |= {"mesh": dist.group.WORLD, "sharding": SHARDING} | WRONG[name][0]()
    tensors = [given.pop(key) for key in ("query", "key", "value")]
    with pytest.raises((ValueError, TypeError), match=WRONG[name][1]):
        context_parallel_attention(*tensors, **given)


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(name: str) -> None:
    run_ranks(2, _attend, name)


def _differentiate_twice() -> None:
    tensors = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]
    out = context_parallel_attention(*tensors, mesh=dist.group.WORLD)
    (grad,) = torch.autograd.grad(out.sum(), tensors[0], create_graph=True)
    with pytest.raises(DoubleBackwardError, match="gradients of its gradients"):
        grad.sum().backward()


def test_gradients_of_gradients_are_refused() -> None:
    run_ranks(2, _differentiate_twice)


def _shards() -> None:
    world = dist.group.WORLD
    whole = torch.arange(3 * LENGTH).view(3, LENGTH)
    dealt = Sharding.head_tail(LENGTH, 2, multiple=3)
    part = shard(whole, dealt, mesh=world)
    assert torch.equal(unshard(part, dealt, mesh=world), whole)
    assert torch.equal(whole[:, position_ids(dealt, mesh=world)[0]], part)
    with pytest.raises(ValueError, match="part: expected a tensor that needs no gradient"):
        unshard(part.float().requires_grad_(), dealt, mesh=world)
    with pytest.raises(ValueError, match=r"part: expected 3[13] positions in dimension 1"):
        unshard(part[:, :5], dealt, mesh=world)


def test_shards_are_joined_again() -> None:
    run_ranks(2, _shards)


def _shards_of_a_mesh(shape: tuple[int, int]) -> None:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("ring", "heads"))
    whole = torch.randn(LENGTH, 2, generator=torch.Generator().manual_seed(0))
    for dealt in (Sharding.head_tail(LENGTH, 4), Sharding.of_lengths([1, 0, 60, 3])):
        part = shard(whole, dealt, mesh=mesh, dim=0)
        assert torch.equal(unshard(part, dealt, mesh=mesh, dim=0), whole)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1)])
def test_a_mesh_of_two_dimensions_holds_shards_too(shape: tuple[int, int]) -> None:
    run_ranks(4, _shards_of_a_mesh, shape)


def _models() -> None:
    world = dist.group.WORLD
    inputs = [torch.randn(1, 2, 32, 8) for _ in range(3)]
    with context_parallel(world, SHARDING), pytest.raises(ValueError, match="no attn_mask inside"):
        scaled_dot_product_attention(*inputs, attn_mask=torch.ones(32, 32, dtype=torch.bool))
    with context_parallel(world, SHARDING), pytest.raises(ValueError, match="dropout_p 0 inside"):
        scaled_dot_product_attention(*inputs, dropout_p=0.1)
    with context_parallel(world, SHARDING), pytest.raises(ValueError, match="enable_gqa=True"):
        scaled_dot_product_attention(inputs[0], inputs[1][:, :1], inputs[2][:, :1])
    with (
        pytest.raises(RuntimeError, match="called no attention that can be spread"),
        context_parallel(world, SHARDING),
    ):
        torch.nn.Linear(8, 8)(inputs[0])


def test_a_model_whose_attention_cannot_be_taken_over_is_refused() -> None:
    run_ranks(2, _models)


def _transform() -> list[tuple[str, str]]:
    world, odd = dist.group.WORLD, dist.get_rank() == 1
    query, key, value = (torch.randn(1, 2, 8, 4) for _ in range(3))
    found = []

    def attend(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = context_parallel_attention(x, key, value, mesh=world)
        return out

    def dual(x: torch.Tensor) -> object:
        with torch.autograd.forward_ad.dual_level():
            return attend(torch.autograd.forward_ad.make_dual(x, x))

    calls: list[Callable[[torch.Tensor], object]] = [
        dual,
        lambda x: torch.func.jvp(attend, (x,), (x,)),
        torch.func.jacfwd(attend),
        torch.func.grad(lambda x: attend(x).sum()),
        lambda x: torch.func.vjp(attend, x),
        torch.func.vmap(attend, in_dims=0),
    ]
    for call in calls:
        given = query[None] if call is calls[-1] else query
        try:
            # One rank alone transforms the call; the others must not wait for it.
            (call if odd else attend)(given if odd else query)
            found.append(("", ""))
        except Exception as error:
            found.append((type(error).__qualname__, str(error)))
    x = query.clone().requires_grad_()
    out = attend(x)
    with pytest.raises(TransformError, match="is_grads_batched"):
        torch.autograd.grad(out, x, torch.ones(2, *out.shape), is_grads_batched=True)
    return found


def test_transforms_are_refused_by_name_on_every_rank() -> None:
    first, second = run_ranks(2, _transform)
    assert first == second
    for (kind, text), name in zip(
        first, ["forward-mode", "jvp", "jvp", "grad", "grad", "vmap"], strict=True
    ):
        assert kind == "TransformError"
        assert text.startswith("context_parallel_attention under ")
        assert name in text
        assert "rank 1 refused" in text
