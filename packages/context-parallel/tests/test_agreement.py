"""What differs by rank is refused on every rank alike, and no rank waits for one that refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import scaled_dot_product_attention

from packages.collectives.tests.ranks import run_ranks
from torchyard_attention import create_block_mask, masks, scores
from torchyard_collectives import CallMismatchError
from torchyard_context_parallel import (
    Sharding,
    context_parallel,
    context_parallel_attention,
    shard,
    unshard,
)

LENGTH = 64


def _tensors(**kind: Any) -> list[Tensor]:
    return [torch.randn(1, 2, LENGTH // 2, 8, **kind) for _ in range(3)]


def _mask(window: int) -> Any:
    mod = masks.sliding_window(window)
    return create_block_mask(mod, None, None, LENGTH, LENGTH, "cpu", 16)


# What rank 1 does otherwise than the others -> (its tensors, its keywords, type, message).
# Rank 0 of "gradients" is the one that trains.
ODD: dict[str, tuple[Callable[[], list[Tensor]], dict[str, Any], type[Exception], str]] = {
    "dtype": (
        lambda: _tensors(dtype=torch.float64),
        {},
        CallMismatchError,
        "dtype: expected the same on every rank, got torch.float32 on rank 0, torch.float64 on ra",
    ),
    "one tensor's dtype": (
        lambda: [*_tensors()[:2], _tensors(dtype=torch.float64)[0]],
        {},
        TypeError,
        r"value: expected torch.float32 .* \(rank 1 refused; all ranks stop\)",
    ),
    "batch": (
        lambda: [tensor.expand(2, -1, -1, -1) for tensor in _tensors()],
        {},
        CallMismatchError,
        r"query without its length: .* got \[1, 2, 8\] on rank 0, \[2, 2, 8\] on rank 1",
    ),
    "heads": (
        lambda: [_tensors()[0], *(tensor[:, :1] for tensor in _tensors()[1:])],
        {},
        CallMismatchError,
        "key without its length",
    ),
    "dimensions": (
        lambda: [tensor[0] for tensor in _tensors()],
        {},
        ValueError,
        r"query: expected \[batch.*rank 1 refused",
    ),
    "gradients": (
        lambda: _tensors(requires_grad=True),
        {},
        CallMismatchError,
        "gradients: expected the same on every rank, got False on rank 0, True on rank 1",
    ),
    "scale": (_tensors, {"scale": 0.5}, CallMismatchError, "scale: .* got None on rank 0, 0.5"),
    "score_mod": (_tensors, {"score_mod": scores.softcap(3.0)}, CallMismatchError, "score_mod: "),
    "mask": (
        _tensors,
        {"block_mask": _mask(9)},
        CallMismatchError,
        "block_mask: .* none on rank 0",
    ),
    "schedule": (_tensors, {"schedule": "allgather"}, CallMismatchError, "schedule: .* ring on"),
    "no schedule": (_tensors, {"schedule": "star"}, ValueError, "schedule: .*rank 1 refused"),
    "sharding": (
        _tensors,
        {"sharding": Sharding.contiguous(3 * LENGTH // 2, 3)},
        CallMismatchError,
        "sharding: expected the same on every rank, got none on rank 0",
    ),
    "program": (
        _tensors,
        {"score_mod": lambda score, b, h, q, k: score if q > k else score * 2},
        Exception,
        r"rank 1 refused; all ranks stop",
    ),
}


def _told(call: Callable[[], object]) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__qualname__, str(error)
    return "", "nothing was refused"


def _odd_calls() -> dict[str, tuple[str, str]]:
    odd = dist.get_rank() == 1
    found = {}
    for name, (tensors, keywords, _, _) in ODD.items():
        given = tensors() if odd else _tensors()
        others = keywords if odd else {}
        found[name] = _told(
            lambda given=given, others=others: context_parallel_attention(  # type: ignore[misc]
                *given, mesh=dist.group.WORLD, **others
            )
        )
    # Nobody was left behind: the next call is computed.
    context_parallel_attention(*_tensors(), mesh=dist.group.WORLD)
    return found


@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_ranks_that_differ_raise_the_same_error_everywhere(backend: str) -> None:
    first, *others = run_ranks(3, _odd_calls, backend=backend)
    for name, (_, _, kind, message) in ODD.items():
        with pytest.raises(kind, match=message):
            raise _rebuilt(kind, first[name])
    assert all(other == first for other in others)


def _rebuilt(kind: type[Exception], told: tuple[str, str]) -> Exception:
    assert kind is Exception or told[0] == kind.__qualname__, told
    return kind(told[1])


def _lengths_that_differ() -> None:
    length = (5, 1, 26)[dist.get_rank()]
    dealt = Sharding.of_lengths([5, 1, 26])
    whole = [torch.randn(1, 2, 32, 8, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    parts = [dealt.take(tensor, dist.get_rank(), 2) for tensor in whole]
    out = context_parallel_attention(*parts, mesh=dist.group.WORLD)
    assert out.shape[2] == length
    expected = dealt.take(scaled_dot_product_attention(*whole), dist.get_rank(), 2)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_lengths_may_differ_by_rank() -> None:
    run_ranks(3, _lengths_that_differ)


def _in_a_mesh() -> list[tuple[str, str]]:
    mesh = init_device_mesh("cpu", (2, 2))
    odd = dist.get_rank() == 2
    tensors = [torch.randn(1, 2, 8, 8, dtype=torch.float64 if odd else None) for _ in range(3)]
    dealt = Sharding.contiguous(32, 4)
    short = torch.randn(1, 7 if odd else 8)
    return [
        _told(lambda: context_parallel_attention(*tensors, mesh=mesh, schedule="hybrid")),
        _told(lambda: unshard(short, dealt, mesh=mesh)),
    ]


def test_ranks_of_a_mesh_of_two_dimensions_agree_too() -> None:
    first, *others = run_ranks(4, _in_a_mesh)
    assert all(other == first for other in others)
    assert first[0][0] == "CallMismatchError"
    assert "torch.float64 on rank 2" in first[0][1]
    assert "rank 2 refused" in first[1][1]


def _model(calls: int) -> Tensor:
    x = torch.randn(1, 2, LENGTH // 2, 8)
    for _ in range(calls):
        x = scaled_dot_product_attention(x, x, x, is_causal=True)
    return x


def _contexts() -> list[tuple[str, str]]:
    world, dealt = dist.group.WORLD, Sharding.contiguous(LENGTH, 2)
    odd = dist.get_rank() == 1

    def run(calls: int, **keywords: Any) -> None:
        with context_parallel(world, dealt):
            _model(calls)
            if keywords:
                x = torch.randn(1, 2, LENGTH // 2, 8)
                scaled_dot_product_attention(x, x, x, **keywords)

    mask = torch.ones(LENGTH // 2, LENGTH // 2, dtype=torch.bool)
    found = [
        _told(lambda: run(1, **({"dropout_p": 0.5} if odd else {"is_causal": True}))),
        _told(lambda: run(1, **({"attn_mask": mask} if odd else {"is_causal": True}))),
        _told(lambda: run(1, is_causal=not odd)),
        _told(lambda: run(1 if odd else 2)),
        _told(lambda: run(0 if odd else 1)),
    ]
    run(1)
    tokens = torch.arange(LENGTH)[None]
    assert torch.equal(unshard(shard(tokens, dealt, mesh=world), dealt, mesh=world), tokens)
    return found


def test_models_that_differ_by_rank_are_refused_everywhere() -> None:
    first, second = run_ranks(2, _contexts)
    assert first == second
    for (kind, text), (expected, part) in zip(
        first,
        [
            ("ValueError", "dropout_p 0 inside context_parallel, got 0.5"),
            ("ValueError", "expected no attn_mask inside context_parallel"),
            ("CallMismatchError", "block_mask: expected the same on every rank"),
            ("CallMismatchError", "rank 1: the end of context_parallel"),
            ("RuntimeError", "called no attention that can be spread"),
        ],
        strict=True,
    ):
        assert (kind, part in text) == (expected, True), text
