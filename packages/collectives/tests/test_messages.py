"""Tokens: the order of messages, in forward and in backward, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_collectives as tc

from .ranks import run_ranks


def _numbers(base: float) -> Tensor:
    return torch.arange(3.0, dtype=torch.float64) + base


def _ping_pong(x: Tensor) -> Tensor:
    """Send two messages there and one back; the order on both sides is the tokens'."""
    if dist.get_rank() == 0:
        first = tc.send(x, 1, grad="sum")
        second = tc.send(x * 10, 1, after=first, grad="sum")
        back = tc.recv(x, 1, after=second, grad="sum")
        return (back * _numbers(1.0)).sum()
    first = tc.recv(x, 0, grad="sum")
    second = tc.recv(x, 0, after=first, grad="sum")
    token = tc.send(first * second + x, 0, after=second, grad="sum")
    return tc.order(x.sum() * 0, token)


def _derivatives(
    wrap: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]],
) -> Tensor:
    x = _numbers(2.0 + dist.get_rank()).requires_grad_()
    (gradient,) = torch.autograd.grad(wrap(_ping_pong)(x), x)
    return gradient


def _eager() -> Tensor:
    return _derivatives(lambda f: f)


def _compiled() -> Tensor:
    torch.compiler.reset()
    return _derivatives(lambda f: torch.compile(f, fullgraph=True, backend="aot_eager"))


def _check(gradients: list[Tensor]) -> None:
    # The loss is sum_i (i + 1) (10 x0_i^2 + x1_i).
    weights = _numbers(1.0)
    assert torch.equal(gradients[0], 20 * _numbers(2.0) * weights)
    assert torch.equal(gradients[1], weights)


def test_messages_there_and_back_have_gradients() -> None:
    _check(run_ranks(2, _eager))


@pytest.mark.sweep
def test_compiled_messages_keep_their_order() -> None:
    _check(run_ranks(2, _compiled))


def _unused_token() -> float:
    """A send whose token nothing uses is still made."""
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x: Tensor) -> Tensor:
        if dist.get_rank() == 0:
            tc.send(x, 1, grad="sum")
            return x + 1
        return tc.recv(x, 0, grad="sum")

    return float(run(_numbers(dist.get_rank())).sum())


def test_a_compiled_send_is_made_though_its_token_is_unused() -> None:
    assert run_ranks(2, _unused_token) == [6.0, 3.0]


def _barriers() -> list[bool]:
    x = _numbers(1.0).requires_grad_()
    token = tc.barrier(after=x)
    y = tc.order(x * 2, token)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    alone = tc.barrier()
    return [bool(token == 0), bool(alone == 0), torch.equal(gradient, torch.full_like(x, 2.0))]


def test_a_barrier_is_a_token_with_a_backward() -> None:
    assert run_ranks(3, _barriers) == [[True] * 3] * 3
