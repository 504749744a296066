"""Collectives under way: their results, and a backward that is under way as long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_collectives as tc

from .ranks import run_ranks

_OPS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, **k: tc.all_reduce(x, grad="sum", **k),
    "avg": lambda x, **k: tc.all_reduce(x, "avg", grad="replicated", **k),
    "gather": lambda x, **k: tc.all_gather(x, 1, grad="sum", **k),
    "whole": lambda x, **k: tc.all_gather(x, grad="replicated", **k),
    "uneven": lambda x, **k: tc.reduce_scatter(x, sizes=[1, 3], grad="sum", **k),
    "exchange": lambda x, **k: tc.all_to_all(x, concat_dim=1, grad="sum", **k),
}


def _input() -> Tensor:
    return torch.arange(12.0, dtype=torch.float64).reshape(4, 3).sin() + dist.get_rank()


def _both_ways() -> bool:
    for op in _OPS.values():
        x = _input().requires_grad_()
        derivatives = []
        for later in (False, True):

            def loss(y: Tensor, op: Any = op, later: bool = later) -> Tensor:
                result = op(y, async_op=True).wait() if later else op(y)
                return result.cos().sum()

            (first,) = torch.autograd.grad(loss(x), x, create_graph=True)
            (second,) = torch.autograd.grad((first * first).sum(), x)
            func = torch.func.grad(loss)(x.detach())
            tangent = torch.func.jvp(loss, (x.detach(),), (torch.ones_like(x),))[1]
            torch.compiler.reset()
            compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
            (in_graph,) = torch.autograd.grad(compiled(x), x)
            derivatives.append([first, second, func, tangent, in_graph])
        for now, then in zip(*derivatives, strict=True):
            assert torch.equal(now, then)
    return True


@pytest.mark.sweep
def test_waiting_later_changes_no_derivative() -> None:
    assert run_ranks(2, _both_ways) == [True, True]


class _Noted(torch.autograd.Function):
    """The identity, which notes when its backward runs and what was under way then."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, notes: list[int]) -> Tensor:
        ctx.notes = notes
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        from torchyard_collectives._api.pending import _under_way

        ctx.notes.append(len(_under_way))
        return grads[0], None


def _backward_between() -> list[int]:
    notes: list[int] = []
    x, w = _input().requires_grad_(), _input().requires_grad_()
    pending = tc.all_reduce(x, grad="sum", async_op=True)
    between = _Noted.apply(w.exp(), notes)
    (pending.wait() * between).sum().backward()
    return notes


def test_the_backward_of_an_asynchronous_collective_is_asynchronous() -> None:
    assert run_ranks(2, _backward_between) == [[1], [1]]


def _refused() -> list[str]:
    texts = []
    x = _input()
    calls: list[Callable[[], Any]] = [
        lambda: torch.func.vmap(lambda y: tc.all_reduce(y, grad="sum", async_op=True).wait())(x),
        lambda: tc.all_reduce(x, "max", grad="sum", async_op=True),
        lambda: tc.reduce_scatter(x, op="product", grad="sum", async_op=True),
    ]
    for call in calls:
        try:
            call()
        except (tc.TransformError, ValueError) as error:
            texts.append(str(error))
    pending = tc.all_reduce(x, grad="sum", async_op=True)
    assert pending.wait() is pending.wait()
    return texts


def test_what_cannot_wait_is_refused() -> None:
    for texts in run_ranks(2, _refused):
        assert len(texts) == 3
        assert all(text.startswith("async_op: expected") for text in texts)
