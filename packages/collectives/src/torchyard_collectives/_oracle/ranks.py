"""One rank's part of a gradient check: its derivatives, in each of torch's modes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from torchyard_collectives._api.reductions import all_reduce

__all__ = [
    "BATCH",
    "MODES",
    "Problem",
    "Program",
    "dot",
    "loss_of",
    "measure",
    "random_like",
    "scalar_loss",
    "tangents_of",
]

Program = Callable[..., Tensor]
BATCH: Final = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """What is differentiated.

    Attributes:
        program: from a rank's tensors to its result.
        replicated: whether the result is one that all ranks share, not a term of each.
        shared: the positions of inputs that are one tensor on every rank.
        inputs: every rank's tensors.
        batches: likewise, each with ``BATCH`` of them in a new first dimension.
    """

    program: Program
    replicated: bool
    shared: tuple[int, ...]
    inputs: tuple[tuple[Tensor, ...], ...]
    batches: tuple[tuple[Tensor, ...], ...]


def random_like(x: Tensor, *key: int) -> Tensor:
    """Return standard normal numbers that depend on the key alone, where x is."""
    # Drawn on the CPU: another device's generator has other numbers.
    generator = torch.Generator().manual_seed(hash(key) % 2**31)
    drawn = torch.randn(x.shape, dtype=x.dtype, generator=generator, device="cpu")
    return drawn.to(x.device)


def scalar_loss(problem: Problem, rank: int, *inputs: Tensor) -> Tensor:
    """Return a loss that is linear in nothing, so that second derivatives are seen."""
    return loss_of(problem, rank, problem.program(*inputs))


def loss_of(problem: Problem, rank: int, y: Tensor) -> Tensor:
    """Return the loss of a rank's result."""
    count = y.numel()
    weights = torch.linspace(0.5, 1.5, max(1, count), dtype=torch.float64, device=y.device)[:count]
    own = 1.0 if problem.replicated else 1.0 + 0.25 * rank
    values = y.real if y.is_complex() else y
    if y.is_complex():
        values = values + 0.5 * y.imag
    return (values.sin() * weights.reshape(y.shape) * own).sum()


def measure(problem: Problem, mode: str, rank: int) -> list[Tensor]:
    """Return what a mode computes on a rank: gradients of inputs, or tangents of the result."""
    return [item.detach() for item in MODES[mode](problem, rank)]


def _leaves(problem: Problem, rank: int) -> list[Tensor]:
    return [x.clone().requires_grad_() for x in problem.inputs[rank]]


def _gradients(loss: Tensor, inputs: Sequence[Tensor], graph: bool = False) -> list[Tensor]:
    found = torch.autograd.grad(
        loss, inputs, create_graph=graph, allow_unused=True, materialize_grads=True
    )
    return list(found)


def _eager(problem: Problem, rank: int) -> list[Tensor]:
    inputs = _leaves(problem, rank)
    return _gradients(scalar_loss(problem, rank, *inputs), inputs)


def _double(problem: Problem, rank: int) -> list[Tensor]:
    inputs = _leaves(problem, rank)
    first = _gradients(scalar_loss(problem, rank, *inputs), inputs, graph=True)
    return _gradients(_second_loss(problem, rank, first), inputs)


def _second_loss(problem: Problem, rank: int, gradients: Sequence[Tensor]) -> Tensor:
    """Return a loss of gradients, in the problem's convention."""
    own = torch.zeros((), dtype=torch.float64, device=gradients[0].device)
    shared = torch.zeros_like(own)
    for position, gradient in enumerate(gradients):
        if problem.replicated and position in problem.shared:
            shared = shared + dot(gradient, random_like(gradient, position))
        else:
            own = own + dot(gradient, random_like(gradient, rank, position))
    if not problem.replicated:
        return own
    return all_reduce(own, grad="replicated") + shared


def dot(a: Tensor, b: Tensor) -> Tensor:
    product = a * b.conj()
    return (product.real if product.is_complex() else product).sum()


def tangents_of(problem: Problem, rank: int) -> tuple[Tensor, ...]:
    return tuple(
        random_like(x, 17, position) if position in problem.shared else random_like(x, rank, 18)
        for position, x in enumerate(problem.inputs[rank])
    )


def _forward(problem: Problem, rank: int) -> list[Tensor]:
    forward_ad: Any = torch.autograd.forward_ad

    pairs = zip(problem.inputs[rank], tangents_of(problem, rank), strict=True)
    with forward_ad.dual_level():
        y = problem.program(*(forward_ad.make_dual(x, t) for x, t in pairs))
        tangent = forward_ad.unpack_dual(y).tangent
        return [torch.zeros_like(y) if tangent is None else tangent.clone()]


def _jvp(problem: Problem, rank: int) -> list[Tensor]:
    tangents = tangents_of(problem, rank)
    return [torch.func.jvp(problem.program, problem.inputs[rank], tangents)[1]]


def _positions(problem: Problem) -> tuple[int, ...]:
    return tuple(range(len(problem.inputs[0])))


def _func_grad(problem: Problem, rank: int) -> list[Tensor]:
    def loss(*inputs: Tensor) -> Tensor:
        return scalar_loss(problem, rank, *inputs)

    return list(torch.func.grad(loss, _positions(problem))(*problem.inputs[rank]))


def _nested_grad(problem: Problem, rank: int) -> list[Tensor]:
    def loss(*inputs: Tensor) -> Tensor:
        return scalar_loss(problem, rank, *inputs)

    def second(*inputs: Tensor) -> Tensor:
        return _second_loss(problem, rank, torch.func.grad(loss, _positions(problem))(*inputs))

    return list(torch.func.grad(second, _positions(problem))(*problem.inputs[rank]))


def _vmap(problem: Problem, rank: int) -> list[Tensor]:
    return [torch.func.vmap(problem.program)(*problem.batches[rank])]


def _vmap_grad(problem: Problem, rank: int) -> list[Tensor]:
    def loss(*inputs: Tensor) -> Tensor:
        return scalar_loss(problem, rank, *inputs)

    gradient = torch.func.grad(loss, _positions(problem))
    return list(torch.func.vmap(gradient)(*problem.batches[rank]))


def _compiled(problem: Problem, rank: int, backend: str = "aot_eager") -> list[Tensor]:
    torch.compiler.reset()
    inputs = _leaves(problem, rank)

    def loss(*given: Tensor) -> Tensor:
        return scalar_loss(problem, rank, *given)

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    return _gradients(compiled(*inputs), inputs)


MODES: Final[dict[str, Callable[[Problem, int], list[Any]]]] = {
    "eager": _eager,
    "compile": _compiled,
    "inductor": functools.partial(_compiled, backend="inductor"),
    "double": _double,
    "forward": _forward,
    "jvp": _jvp,
    "vmap": _vmap,
    "vmap of grad": _vmap_grad,
    "func.grad": _func_grad,
    "grad of grad": _nested_grad,
}
