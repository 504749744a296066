"""The reference of a gradient check: one graph over all ranks' tensors, on one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from torchyard_collectives._oracle.ranks import (
    BATCH,
    Problem,
    dot,
    loss_of,
    random_like,
    tangents_of,
)
from torchyard_collectives._simulation import simulate

__all__ = ["TRUTHS", "Dense", "UnsharedLossError", "simulated"]

Ranks = list[list[Tensor]]
# Every rank's tensors to every rank's result.
Dense = Callable[[Ranks], Sequence[Tensor]]


class UnsharedLossError(ValueError):
    """A program that is said to be replicated has another result on each rank."""


def _leaves(problem: Problem, inputs: Sequence[Sequence[Tensor]]) -> Ranks:
    """Return every rank's inputs as leaves; shared ones are one leaf."""
    leaves = [[x.clone().requires_grad_() for x in own] for own in inputs]
    if problem.replicated:
        for own in leaves:
            for position in problem.shared:
                own[position] = leaves[0][position]
    return leaves


def simulated(problem: Problem) -> Dense:
    """Return a program as one of all ranks."""
    return lambda ranks: simulate(len(ranks), lambda rank: problem.program(*ranks[rank]))


def _loss(problem: Problem, dense: Dense, leaves: Ranks) -> Tensor:
    losses = [loss_of(problem, rank, y) for rank, y in enumerate(dense(leaves))]
    if not problem.replicated:
        return torch.stack(losses).sum()
    for rank, loss in enumerate(losses):
        if not torch.allclose(loss, losses[0]):
            raise UnsharedLossError(
                f"loss: expected 'sum', or a result that is the same on every rank; that of rank "
                f"{rank} differs from rank 0's"
            )
    return losses[0]


def _gradients(loss: Tensor, leaves: Ranks, graph: bool = False) -> Ranks:
    """Return every rank's gradients; a shared leaf has one, which each rank has."""
    flat = [x for own in leaves for x in own]
    unique = list({id(x): x for x in flat}.values())
    found = torch.autograd.grad(
        loss, unique, create_graph=graph, allow_unused=True, materialize_grads=True
    )
    of = {id(x): gradient for x, gradient in zip(unique, found, strict=True)}
    return [[of[id(x)] for x in own] for own in leaves]


def _first(problem: Problem, dense: Dense) -> Ranks:
    leaves = _leaves(problem, problem.inputs)
    return _gradients(_loss(problem, dense, leaves), leaves)


def _second(problem: Problem, dense: Dense) -> Ranks:
    leaves = _leaves(problem, problem.inputs)
    first = _gradients(_loss(problem, dense, leaves), leaves, graph=True)
    total = torch.zeros((), dtype=torch.float64, device=first[0][0].device)
    for rank, gradients in enumerate(first):
        for position, gradient in enumerate(gradients):
            if problem.replicated and position in problem.shared:
                if rank == 0:
                    total = total + dot(gradient, random_like(gradient, position))
            else:
                total = total + dot(gradient, random_like(gradient, rank, position))
    return _gradients(total, leaves)


def _tangent(problem: Problem, dense: Dense) -> Ranks:
    # The transpose of the transpose: J t is the derivative by u of <J^T u, t>.
    leaves = [[x.clone().requires_grad_() for x in own] for own in problem.inputs]
    outputs = list(dense(leaves))
    dummies = [torch.zeros_like(y, requires_grad=True) for y in outputs]
    paired = sum(
        (dot(y, u.conj()) for y, u in zip(outputs, dummies, strict=True)),
        start=torch.zeros((), dtype=torch.float64, device=outputs[0].device),
    )
    pulled = _gradients(paired, leaves, graph=True)
    tangents = [tangents_of(problem, rank) for rank in range(len(leaves))]
    pairs = [
        dot(g, t)
        for own, given in zip(pulled, tangents, strict=True)
        for g, t in zip(own, given, strict=True)
    ]
    found = torch.autograd.grad(
        torch.stack(pairs).sum(), dummies, allow_unused=True, materialize_grads=True
    )
    return [[tangent] for tangent in found]


def _samples(problem: Problem) -> list[Ranks]:
    return [[[x[index] for x in own] for own in problem.batches] for index in range(BATCH)]


def _stacked(samples: list[Ranks]) -> Ranks:
    return [
        [torch.stack(items) for items in zip(*(sample[rank] for sample in samples), strict=True)]
        for rank in range(len(samples[0]))
    ]


def _batched_outputs(problem: Problem, dense: Dense) -> Ranks:
    return _stacked([[[y] for y in dense(sample)] for sample in _samples(problem)])


def _batched_gradients(problem: Problem, dense: Dense) -> Ranks:
    found = []
    for sample in _samples(problem):
        leaves = _leaves(problem, sample)
        found.append(_gradients(_loss(problem, dense, leaves), leaves))
    return _stacked(found)


TRUTHS: Final[dict[str, Callable[[Problem, Dense], Ranks]]] = {
    "eager": _first,
    "compile": _first,
    "inductor": _first,
    "double": _second,
    "forward": _tangent,
    "jvp": _tangent,
    "vmap": _batched_outputs,
    "vmap of grad": _batched_gradients,
    "func.grad": _first,
    "grad of grad": _second,
}
