"""The oracle finds what is wrong, in the modes where it is wrong, and says where."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import torchyard_collectives as tc
from packages.collectives.tests.ranks import run_ranks
from torchyard_collectives._simulation import simulate
from torchyard_collectives.oracle import (
    GradientMismatchError,
    UnsharedLossError,
    check_collective_grads,
)

from .cases import CASES, inputs, program


class _Local(torch.autograd.Function):
    """all_reduce as code often has it: the backward is the identity, which is no collective."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, *grads: Tensor) -> Tensor:
        return grads[0]


def _local(x: Tensor) -> Tensor:
    result: Tensor = _Local.apply(x)
    return result


def _dense_sum(ranks: list[list[Tensor]]) -> list[Tensor]:
    return [torch.stack([own[0] for own in ranks]).sum(0)] * len(ranks)


def _over_counted(x: Tensor) -> Tensor:
    return tc.all_reduce(x, grad="sum")


def _own(x: Tensor) -> Tensor:
    return x * 2


def _weights(rank: int, size: int) -> Sequence[Tensor]:
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    return [torch.full((2, 3), 0.1 * (rank + 1), dtype=torch.float64), weight]


def _split_layer(x: Tensor, weight: Tensor) -> Tensor:
    """Rows differ by rank, the weight is every rank's."""
    return tc.all_gather((x @ tc.vary(weight, grad="replicated")).tanh(), grad="replicated")


def _forgotten_vary(x: Tensor, weight: Tensor) -> Tensor:
    return tc.all_gather((x @ weight).tanh(), grad="replicated")


def _columns(x: Tensor, weight: Tensor) -> Tensor:
    """Each rank has some of the weight's columns."""
    own = tc.shard(weight, 1, grad="replicated")
    x = tc.all_gather(x, grad="replicated")
    return tc.all_gather((tc.vary(x, grad="replicated") @ own).tanh(), 1, grad="replicated")


def test_a_local_gradient_is_found() -> None:
    with pytest.raises(GradientMismatchError, match=r"eager: rank 0, tensor 0: off by"):
        check_collective_grads(_local, 2, dense=_dense_sum, launch=run_ranks)


def test_a_convention_that_is_not_the_losss_is_found() -> None:
    with pytest.raises(GradientMismatchError, match="eager"):
        check_collective_grads(_over_counted, 2, loss="replicated", launch=run_ranks)


def test_a_backward_that_is_local_is_found_by_its_own_derivative() -> None:
    def check(mode: str) -> None:
        check_collective_grads(
            _local, 2, loss="replicated", modes=[mode], dense=_dense_sum, launch=run_ranks
        )

    # Of one loss that all ranks share, the identity is right, once.
    check("eager")
    with pytest.raises(GradientMismatchError, match="double"):
        check("double")


def test_a_result_that_differs_is_no_shared_loss() -> None:
    with pytest.raises(UnsharedLossError, match="rank 1"):
        check_collective_grads(_own, 2, loss="replicated", launch=run_ranks)


@pytest.mark.parametrize("layer", [_split_layer, _columns])
def test_shared_weights_have_their_whole_gradient(layer: object) -> None:
    assert callable(layer)
    modes = ["eager", "double", "func.grad", "grad of grad", "compile"]
    checks = check_collective_grads(
        layer, 2, loss="replicated", inputs=_weights, shared=[1], modes=modes, launch=run_ranks
    )
    assert [check.mode for check in checks] == modes
    assert all(check.error <= check.allowed for check in checks)


def test_a_shared_weight_that_was_not_handed_over_is_found() -> None:
    with pytest.raises(GradientMismatchError, match="tensor 1"):
        check_collective_grads(
            _forgotten_vary, 2, loss="replicated", inputs=_weights, shared=[1], launch=run_ranks
        )


def _raises(x: Tensor) -> Tensor:
    raise LookupError("in the program")


def test_what_a_program_raises_is_shown() -> None:
    with pytest.raises(LookupError, match="in the program"):
        check_collective_grads(_raises, 2, launch=run_ranks)


def _in_place(rank_count: int) -> list[str]:
    return [check.mode for check in check_collective_grads(_over_counted, rank_count)]


def test_inside_of_a_group_of_that_size_the_group_is_used() -> None:
    assert run_ranks(2, _in_place, 2) == [["eager", "double", "forward", "func.grad"]] * 2


@pytest.mark.sweep
def test_without_a_group_processes_are_started(tmp_path: Path) -> None:
    program = (
        "import torch, torchyard_collectives as tc\n"
        "from torchyard_collectives.oracle import check_collective_grads\n"
        "def fn(x):\n"
        "    return tc.all_reduce(x, 'max', grad='sum')\n"
        "if __name__ == '__main__':\n"
        "    print(check_collective_grads(fn, 2, modes=['eager']))\n"
    )
    path = tmp_path / "example.py"
    path.write_text(program, encoding="utf-8")
    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "mode='eager'" in result.stdout


def test_unknown_modes_and_losses_are_refused() -> None:
    with pytest.raises(ValueError, match="modes: expected some of eager"):
        check_collective_grads(_own, 2, modes=["lazy"])
    with pytest.raises(ValueError, match="loss: expected"):
        check_collective_grads(_own, 2, loss="mean")
    with pytest.raises(TypeError, match="modes: expected a list or a tuple, got 'eager'"):
        check_collective_grads(_own, 2, modes="eager")
    with pytest.raises(ValueError, match="world_size: expected an int of 1 to 4096, got 0"):
        check_collective_grads(_own, 0)
    with pytest.raises(ValueError, match="shared: expected positions of a rank's 1 inputs, got 1"):
        check_collective_grads(_own, 2, shared=[1])


def test_a_simulated_rank_that_makes_another_call_is_reported() -> None:
    def program(rank: int) -> Tensor:
        x = torch.ones(2)
        return tc.all_reduce(x, grad="sum") if rank else tc.all_gather(x, grad="sum")

    with pytest.raises(tc.CallMismatchError, match="all_gather"):
        simulate(2, program)


def _elsewhere(function: Callable[..., list[Tensor]], *args: Any) -> list[Tensor]:
    with torch.device("meta"):
        return function(*args)


# A tensor that is made without a device would be a stranger to those of an accelerator, as one
# without values is to these.
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_everything_is_where_the_inputs_are(name: str) -> None:
    given = [inputs(rank, 2, name=name) for rank in range(2)]
    with torch.device("meta"):
        check_collective_grads(
            functools.partial(program, name=name, convention="sum", size=2),
            2,
            inputs=lambda rank, size: given[rank],
            modes=("eager", "double", "forward", "jvp"),
            launch=lambda size, *call: run_ranks(size, _elsewhere, *call),
        )
