"""What raises on one rank alone, in the middle of an exchange, is raised on every rank."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from packages.collectives.tests.ranks import run_ranks
from torchyard_attention import create_block_mask, masks
from torchyard_context_parallel import Sharding, context_parallel_attention

_LENGTH = 96
_METHODS = "torchyard_context_parallel._methods"


def _causal(block: int) -> Any:
    return create_block_mask(masks.causal, None, None, _LENGTH, _LENGTH, "cpu", block)


def _attend(**words: Any) -> Tensor:
    part = _LENGTH // dist.get_world_size()
    generator = torch.Generator().manual_seed(dist.get_rank())
    q, k, v = (torch.randn(1, 2, part, 8, generator=generator) for _ in range(3))
    found: Tensor = context_parallel_attention(
        *(tensor.requires_grad_() for tensor in (q, k, v)), mesh=dist.group.WORLD, **words
    )
    return found


def _caught(error: BaseException) -> tuple[str, str, str]:
    return type(error).__name__, str(error), type(error.__cause__).__name__


def _indexes_too_far(schedule: str) -> list[Any]:
    """Under a causal mask the last rank alone reads the end of a table that is too short."""
    table = torch.ones(2 * _LENGTH // 3)
    with pytest.raises(IndexError) as caught:
        _attend(
            score_mod=lambda score, b, h, q, k: score + table[k],
            block_mask=_causal(16),
            schedule=schedule,
        )
    # The group goes on.
    whole = torch.ones(_LENGTH)
    out = _attend(
        score_mod=lambda score, b, h, q, k: score + whole[k],
        block_mask=_causal(16),
        schedule=schedule,
    )
    out.sum().backward()  # type: ignore[no-untyped-call]
    return [*_caught(caught.value), bool(out.isfinite().all())]


@pytest.mark.parametrize("schedule", ["ring", "allgather"])
@pytest.mark.parametrize("backend", ["gloo", "shm"])
def test_a_score_mod_that_raises_on_one_rank_raises_on_all(schedule: str, backend: str) -> None:
    found = run_ranks(3, _indexes_too_far, schedule, backend=backend, timeout=60)
    for rank, (_, text, cause, usable) in enumerate(found):
        assert "(rank 2 refused; all ranks stop)" in text
        assert (cause == "IndexError") is (rank == 2)
        assert usable
    assert len({tuple(row[:2]) for row in found}) == 1


class _OddError(Exception):
    """An error of a user's own."""


def _raises_in_part(name: str, schedule: str, backward: bool) -> list[Any]:
    def odd(*_: Any, **__: Any) -> Any:
        raise _OddError("not on this rank")

    module = f"{_METHODS}.{'ring' if schedule == 'ring' else 'gathered'}"
    patched = mock.patch(f"{module}.{name}", odd) if dist.get_rank() else nullcontext()

    def run() -> None:
        out = _attend(score_mod=lambda score, b, h, q, k: score * 2, schedule=schedule)
        if backward:
            out.sum().backward()  # type: ignore[no-untyped-call]

    with patched, pytest.raises(RuntimeError) as caught:
        run()
    return [*_caught(caught.value)]


@pytest.mark.parametrize("schedule", ["ring", "allgather", "ulysses"])
@pytest.mark.parametrize("backward", [False, True])
def test_an_error_of_any_kind_names_the_rank_and_the_cause(schedule: str, backward: bool) -> None:
    name = "attention_gradients" if backward else "flex_attention"
    found = run_ranks(2, _raises_in_part, name, schedule, backward, timeout=60)
    for rank, (kind, text, cause) in enumerate(found):
        assert kind == "RuntimeError"
        assert text == "_OddError: not on this rank (rank 1 refused; all ranks stop)"
        assert (cause == "_OddError") is (rank == 1)


def _raises_in_mask() -> list[Any]:
    calls = []

    def mod(b: Any, h: Any, q: Any, k: Any) -> Any:
        calls.append(1)
        if len(calls) > 1 and dist.get_rank():
            raise ValueError("no more")
        return q >= k

    mask = create_block_mask(mod, None, None, _LENGTH, _LENGTH, "cpu", 32)
    calls[:] = [1]
    sharding = Sharding.contiguous(_LENGTH, dist.get_world_size())  # 48 each, in blocks of 32
    with pytest.raises(ValueError, match="no more") as caught:
        _attend(block_mask=mask, sharding=sharding)
    return [*_caught(caught.value)]


def test_a_mask_mod_that_raises_on_one_rank_raises_on_all() -> None:
    for _, text, _ in run_ranks(2, _raises_in_mask, timeout=60):
        assert text == "no more (rank 1 refused; all ranks stop)"
