"""Collectives between accelerators return, and differentiate as, the dense program in float64.

Each rank has a device, so that one device makes a group of one rank: what needs another is
UNVERIFIED there.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist

from packages.collectives.tests.gradients.cases import CASES, GradientCase
from packages.collectives.tests.gradients.checks import check_gradients, check_values

# More of them show no more of what an op does.
_MOST_RANKS = 4
# Of processes without an accelerator, which a CPU has room for.
_PROCESSES = 2
_CASES = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@dataclass(frozen=True, slots=True)
class _World:
    """Where the ranks are.

    Attributes:
        device: torch device type.
        backend: that torch takes for it.
        size: how many ranks.
    """

    device: str
    backend: str
    size: int

    def has(self, case: GradientCase) -> None:
        """Say where there are too few ranks for a case."""
        if self.size < case.least:
            pytest.skip(f"UNVERIFIED: {case.name}: needs {case.least} devices, got {self.size}")


@pytest.fixture
def world(device: str) -> _World:
    """Return as many ranks as there are devices."""
    try:
        torch.ones((), dtype=torch.float64, device=device).sin().item()
    except (RuntimeError, TypeError) as error:
        # Apple's GPUs and some of Intel's have no such numbers.
        pytest.skip(f"UNVERIFIED: collectives in float64 on {device}: {error}")
    module = torch.get_device_module(device)
    count = _PROCESSES if device == "cpu" else min(module.device_count(), _MOST_RANKS)
    return _World(device, dist.get_default_backend_for_device(device), count)


@_CASES
def test_values_equal_the_dense_program(world: _World, case: GradientCase) -> None:
    world.has(case)
    check_values(case.name, world.size, backend=world.backend, device=world.device)


@_CASES
def test_derivatives_equal_the_dense_program(world: _World, case: GradientCase) -> None:
    world.has(case)
    modes = ("eager", "double", "forward")
    check_gradients(
        *(case.name, "sum", world.size, *modes), backend=world.backend, device=world.device
    )


# Those whose "replicated" is not their "sum".
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.typed[1][1] == "invariant"], ids=lambda case: case.name
)
def test_derivatives_of_a_shared_loss_do_too(world: _World, case: GradientCase) -> None:
    world.has(case)
    check_gradients(
        *(case.name, "replicated", world.size, "eager", "func.grad"),
        backend=world.backend,
        device=world.device,
    )
