"""What an op returns, and its derivatives, on the ranks of a group, against the dense program."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from packages.collectives.tests.ranks import run_ranks
from torchyard_collectives._simulation import simulate
from torchyard_collectives.oracle import check_collective_grads

from .cases import inputs, program

__all__ = ["check_gradients", "check_values"]


def check_gradients(
    name: str,
    convention: str,
    size: int,
    *modes: str,
    backend: str = "gloo",
    device: str = "cpu",
    fresh: bool = False,
) -> None:
    """Compare an op's derivatives on each rank with those of the dense program on the CPU.

    Args:
        name: of the case.
        convention: of its gradient.
        size: how many ranks.
        *modes: ways to differentiate.
        backend: of the group.
        device: torch device type, of which each rank has one.
        fresh: whether the ranks' processes are used for nothing else.
    """
    loss = "replicated" if convention.endswith("replicated") else "sum"
    checks = check_collective_grads(
        functools.partial(program, name=name, convention=convention, size=size),
        size,
        loss=loss,
        inputs=functools.partial(inputs, name=name),
        modes=modes,
        launch=functools.partial(run_ranks, backend=backend, device=device, fresh=fresh),
    )
    assert [check.mode for check in checks] == list(modes)


def check_values(
    name: str, size: int, *, backend: str = "gloo", device: str = "cpu", fresh: bool = False
) -> None:
    """Compare an op's result on each rank with the dense program's on the CPU.

    Args:
        name: of the case.
        size: how many ranks.
        backend: of the group.
        device: torch device type, of which each rank has one.
        fresh: whether the ranks' processes are used for nothing else.
    """
    run = functools.partial(program, name=name, convention="sum", size=size)
    given = [list(inputs(rank, size, name=name)) for rank in range(size)]
    truth = simulate(size, lambda rank: run(*given[rank]))
    found = run_ranks(size, _result, run, given, backend=backend, device=device, fresh=fresh)
    terms = 1 + sum(x.numel() for own in given for x in own)
    for (value, kind), right in zip(found, truth, strict=True):
        assert kind == device
        assert value.dtype == right.dtype
        # A sum rounds once for each term, in whatever order; sin and cos by a few units.
        scale = float(right.abs().max()) if right.numel() else 1.0
        allowed = 8 * terms * torch.finfo(torch.float64).eps * max(1.0, scale)
        torch.testing.assert_close(value, right, atol=allowed, rtol=0)


def _result(run: Callable[..., Tensor], given: list[list[Tensor]]) -> tuple[Tensor, str]:
    """Return the result and the type of the device that it is on."""
    result = run(*given[torch.distributed.get_rank()])
    return result, result.device.type
