"""``check_collective_grads``: is a program's gradient right on every rank?

The reference is one process in which all ranks' tensors are parts of one graph: the ranks are
threads, and each collective is plain differentiable torch on all of their inputs. What the ranks of
a real group compute is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from torchyard import arguments
from torchyard_collectives._oracle.dense import TRUTHS, Dense, UnsharedLossError, simulated
from torchyard_collectives._oracle.launch import launch_ranks
from torchyard_collectives._oracle.ranks import BATCH, MODES, Problem, measure, random_like

__all__ = [
    "Dense",
    "GradientCheck",
    "GradientMismatchError",
    "Inputs",
    "Launch",
    "UnsharedLossError",
    "check_collective_grads",
    "compare_with_dense",
]

# Each rank is a process here, and a thread of the dense computation.
_MOST_RANKS: Final = 4096

Inputs = Callable[[int, int], Sequence[Tensor]]
# (world_size, function, *args) to the results by rank, as of function(*args) on each.
Launch = Callable[..., list[Any]]


class GradientMismatchError(AssertionError):
    """What ranks compute differs from the dense computation; says where, in which mode."""


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """What was compared.

    Attributes:
        mode: by which of torch's ways.
        error: the greatest absolute difference, over ranks and inputs.
        allowed: the difference that rounding explains.
    """

    mode: str
    error: float
    allowed: float


def check_collective_grads(
    fn: Callable[..., Tensor],
    world_size: int,
    *,
    loss: str = "sum",
    inputs: Inputs | None = None,
    shared: Sequence[int] = (),
    modes: Sequence[str] = ("eager", "double", "forward", "func.grad"),
    dense: Dense | None = None,
    launch: Launch | None = None,
) -> list[GradientCheck]:
    """Compare every rank's derivatives of ``fn`` with a dense computation on one process.

    Args:
        fn: from a rank's tensors to its result; its groups are None or global ranks. New processes
            import it by its module and name.
        world_size: how many ranks.
        loss: "sum": each rank's result is a term of the loss; "replicated": ``fn`` has one result,
            the same on each rank.
        inputs: (rank, world_size) to that rank's tensors, in float64 or complex128, on a device
            that the group has a backend for; None: one of shape [2 * world_size, 3] on the CPU.
        shared: positions of inputs that are one tensor on every rank, such as weights. With
            loss="replicated" each rank must have the whole gradient of it.
        modes: what to compare: "eager", "compile" (aot_eager), "inductor", "double" (gradients of
            gradients), "forward", "jvp", "vmap", "vmap of grad", "func.grad", "grad of grad".
        dense: every rank's tensors, [rank][position], to every rank's result, in plain
            differentiable torch; None: ``fn`` itself, where it calls this package's collectives
            alone. With it, anything is checked: stock collectives, your own autograd functions.
        launch: what runs a function on every rank; None: this process's own group where it has
            ``world_size`` ranks (all of which then call this), or else new processes.

    Returns:
        what was compared, one for each mode.

    Raises:
        GradientMismatchError: a derivative is wrong.
        UnsharedLossError: loss="replicated", but ranks have different results.
        ValueError: no such mode or loss.
    """
    of = "check_collective_grads"
    arguments.function(of, "fn", fn)
    world_size = arguments.integer(of, "world_size", world_size, least=1, most=_MOST_RANKS)
    modes = arguments.sequence(of, "modes", modes, arguments.text)
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"modes: expected some of {', '.join(MODES)}, got {mode!r}")
    arguments.choice(of, "loss", loss, ("sum", "replicated"))
    shared = arguments.sequence(of, "shared", shared, arguments.integer)
    for name, given in (("inputs", inputs), ("dense", dense), ("launch", launch)):
        if given is not None:
            arguments.function(of, name, given)
    problem = _problem(
        fn, world_size, loss == "replicated", _one_input if inputs is None else inputs, shared
    )
    run = launch_ranks if launch is None else launch
    return [compare_with_dense(problem, mode, run, dense) for mode in modes]


def compare_with_dense(
    problem: Problem, mode: str, launch: Launch, dense: Dense | None
) -> GradientCheck:
    """Compare one mode; see ``check_collective_grads``."""
    truth = TRUTHS[mode](problem, simulated(problem) if dense is None else dense)
    found = launch(len(problem.inputs), _measured, problem, mode)
    allowed = _allowed(problem, mode, dense, truth)
    worst = 0.0
    for rank, (own, right) in enumerate(zip(found, truth, strict=True)):
        for position, (value, expected) in enumerate(zip(own, right, strict=True)):
            error = _difference(value, expected)
            worst = max(worst, error)
            if not error <= allowed:
                raise GradientMismatchError(
                    f"{mode}: rank {rank}, tensor {position}: off by {error:.3g} (allowed "
                    f"{allowed:.1g})\ngot      {value.flatten()[:8].tolist()}\nexpected "
                    f"{expected.flatten()[:8].tolist()}"
                )
    return GradientCheck(mode, worst, allowed)


def _allowed(problem: Problem, mode: str, dense: Dense | None, truth: list[list[Tensor]]) -> float:
    """Return the difference that rounding explains.

    Sums round as often as they have terms. And what a program makes of rounding is seen by what it
    makes of inputs that were rounded to single precision, which is as much coarser.
    """
    largest = max((x.abs().max().item() for own in truth for x in own if x.numel()), default=0.0)
    terms = sum(x.numel() for own in problem.inputs for x in own) + 1
    rounded = replace(
        problem,
        inputs=tuple(tuple(_rounded(x) for x in own) for own in problem.inputs),
        batches=tuple(tuple(_rounded(x) for x in own) for own in problem.batches),
    )
    near = TRUTHS[mode](rounded, simulated(rounded) if dense is None else dense)
    moved = max(
        _difference(value, expected)
        for own, right in zip(near, truth, strict=True)
        for value, expected in zip(own, right, strict=True)
    )
    precision = torch.finfo(torch.float64).eps
    coarser = torch.finfo(torch.float32).eps / precision
    return 64 * max(precision * terms * max(1.0, largest), moved / coarser)


def _rounded(x: Tensor) -> Tensor:
    return x.to(torch.complex64 if x.is_complex() else torch.float32).to(x.dtype)


def _measured(problem: Problem, mode: str) -> list[Tensor]:
    # Another rank's device is not this one's.
    return [item.cpu() for item in measure(problem, mode, torch.distributed.get_rank())]


def _difference(value: Tensor, expected: Tensor) -> float:
    if value.shape != expected.shape:
        return float("inf")
    if not value.numel():
        return 0.0
    return float((value.cpu() - expected.cpu()).abs().max())


def _one_input(rank: int, world_size: int) -> list[Tensor]:
    return [random_like(torch.empty(2 * world_size, 3, dtype=torch.float64), 1, rank)]


def _problem(
    fn: Callable[..., Tensor],
    world_size: int,
    replicated: bool,
    inputs: Inputs,
    shared: tuple[int, ...],
) -> Problem:
    given = [tuple(inputs(rank, world_size)) for rank in range(world_size)]
    for position in shared:
        for own in given:
            if not 0 <= position < len(own):
                raise ValueError(
                    f"shared: expected positions of a rank's {len(own)} inputs, got {position}"
                )
            if not torch.equal(own[position], given[0][position]):
                raise ValueError(
                    f"shared: expected input {position} to be the same on every rank, got others"
                )
    batches = [
        tuple(
            torch.stack([x, *(x + 0.1 * _noise(x, rank, p, shared) for _ in range(BATCH - 1))])
            for p, x in enumerate(own)
        )
        for rank, own in enumerate(given)
    ]
    return Problem(fn, replicated, shared, tuple(given), tuple(batches))


def _noise(x: Tensor, rank: int, position: int, shared: tuple[int, ...]) -> Tensor:
    return random_like(x, 3, position) if position in shared else random_like(x, 4, rank, position)
