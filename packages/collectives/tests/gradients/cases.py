"""Every op as a program to differentiate, and the conventions that it is differentiated in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

import torchyard_collectives as tc
from torchyard_collectives._oracle.ranks import random_like

__all__ = ["CASES", "CONVENTIONS", "GradientCase", "inputs", "program"]

Grad = str | tc.Typed


@dataclass(frozen=True, slots=True)
class GradientCase:
    """One op.

    Attributes:
        name: what it is called in the table.
        run: (x, grad, size) to the op's result.
        rows: (rank, size) to x's rows; None: 2 for each rank.
        typed: pairs that mean what "sum" means, and what "replicated" means.
        least: how many ranks it needs.
    """

    name: str
    run: Callable[[Tensor, Grad, int], Tensor]
    rows: Callable[[int, int], int] | None = None
    typed: tuple[tuple[str, str], tuple[str, str]] = (("varying", "varying"),) * 2
    least: int = 1


def _uneven(rank: int, size: int) -> int:
    return rank + 1


def _sizes(size: int) -> list[int]:
    return [rank + 1 for rank in range(size)]


def _total(rank: int, size: int) -> int:
    return sum(_sizes(size))


def _holey(size: int) -> list[int]:
    """Return rows of which one rank gets none."""
    return [2 * rank for rank in range(size)]


def _holey_rows(rank: int, size: int) -> int:
    # Those of other ranks than 0, which deals out, stand for nothing.
    return sum(_holey(size)) if rank == 0 else 1


def _all_reduce(op: Any) -> Callable[[Tensor, Grad, int], Tensor]:
    return functools.partial(_reduced, op=op)


def _reduced(x: Tensor, grad: Grad, size: int, op: Any) -> Tensor:
    return tc.all_reduce(x, op, grad=grad)


def _ties(x: Tensor, grad: Grad, size: int) -> Tensor:
    # Rounded, so that ranks tie.
    return tc.all_reduce(x + (x.round().clamp(-1, 1) - x).detach(), "max", grad=grad)


def _zeros(x: Tensor, grad: Grad, size: int) -> Tensor:
    # Factors of zero, on one rank and on several.
    return tc.all_reduce((x.detach().abs() > 0.5) * x, "product", grad=grad)


def _premultiplied(x: Tensor, grad: Grad, size: int) -> Tensor:
    return tc.all_reduce(x, tc.PremulSum(x.cos()), grad=grad)


def _all_to_all_uneven(x: Tensor, grad: Grad, size: int) -> Tensor:
    # Rank s sends (s + r) % size rows to rank r.
    rank = _rank_of_rows(x, size)
    sizes = [(rank + other) % size for other in range(size)]
    return tc.all_to_all(x, input_sizes=sizes, output_sizes=sizes, grad=grad)


def _all_to_all_rows(rank: int, size: int) -> int:
    return sum((rank + other) % size for other in range(size))


def _rank_of_rows(x: Tensor, size: int) -> int:
    from torchyard_collectives._validation.group import resolve

    return resolve(None).rank


def _send_around(x: Tensor, grad: Grad, size: int) -> Tensor:
    """Send from rank 0 to rank 1 and on to the last, each adding its own."""
    rank = _rank_of_rows(x, size)
    if rank == 0:
        return tc.order(x.sin(), tc.send(x, 1, grad=grad))
    passed = tc.recv(x, rank - 1, grad=grad) * x
    if rank == size - 1:
        return passed
    return tc.order(passed, tc.send(passed, rank + 1, after=passed, grad=grad))


def _behind_barrier(x: Tensor, grad: Grad, size: int) -> Tensor:
    return tc.order(x.cos(), tc.barrier(after=x.sin()))


def _subgroups(x: Tensor, grad: Grad, size: int) -> Tensor:
    return tc.broadcast(x, size - 1, tuple(range(size)), grad=grad)


def _same(x: Tensor, grad: Grad) -> Tensor:
    """Return what all ranks hold, in the convention of what follows."""
    invariant = grad == "replicated" or (isinstance(grad, tuple) and grad[0] == "invariant")
    return tc.all_reduce(x.sin(), grad="replicated" if invariant else "sum")


def _later(x: Tensor, grad: Grad, size: int) -> Tensor:
    first = tc.all_reduce(x, "avg", grad=grad, async_op=True)
    second = tc.all_gather(x, grad=_named(grad), async_op=True)
    return first.wait() * second.wait()[: x.shape[0]]


def _named(grad: Grad) -> str:
    if isinstance(grad, str):
        return grad
    return "replicated" if grad[1] == "invariant" else "sum"


def _tree(x: Tensor, grad: Grad, size: int) -> Tensor:
    tree = tc.tree_all_reduce({"a": x, "b": [x.sum(0), x[:1].cos()]}, grad=grad)
    first, (second, third) = tree["a"], tree["b"]
    result: Tensor = first * second + third
    return result


def _tree_apart(x: Tensor, grad: Grad, size: int) -> Tensor:
    first, second = tc.tree_reduce_scatter((x, x.sin()), grad=grad)
    result: Tensor = first * second
    return result


_KEPT: Final = (("replicated", "varying"), ("invariant", "varying"))
_GATHERED: Final = (("varying", "replicated"), ("varying", "invariant"))
_SUMMED: Final = (("partial", "replicated"), ("partial", "invariant"))
_APART: Final = (("partial", "varying"),) * 2
CASES: Final = (
    GradientCase("all_reduce sum", _all_reduce("sum"), typed=_SUMMED),
    GradientCase("all_reduce avg", _all_reduce("avg"), typed=_SUMMED),
    GradientCase("all_reduce max", _all_reduce("max"), typed=_SUMMED),
    GradientCase("all_reduce min", _all_reduce("min"), typed=_SUMMED),
    GradientCase("all_reduce max, ties", _ties, typed=_SUMMED),
    GradientCase("all_reduce product", _all_reduce("product"), typed=_SUMMED),
    GradientCase("all_reduce product, zeros", _zeros, typed=_SUMMED),
    GradientCase("all_reduce premul_sum", _premultiplied, typed=_SUMMED),
    GradientCase("all_gather dim 0", lambda x, g, n: tc.all_gather(x, grad=g), typed=_GATHERED),
    GradientCase("all_gather dim 1", lambda x, g, n: tc.all_gather(x, 1, grad=g), typed=_GATHERED),
    GradientCase(
        "all_gather uneven",
        lambda x, g, n: tc.all_gather(x, sizes=_sizes(n), grad=g),
        _uneven,
        _GATHERED,
    ),
    GradientCase("reduce_scatter sum", lambda x, g, n: tc.reduce_scatter(x, grad=g), typed=_APART),
    GradientCase(
        "reduce_scatter avg, dim -1",
        lambda x, g, n: tc.reduce_scatter(x.T, -1, op="avg", grad=g),
        typed=_APART,
    ),
    GradientCase(
        "reduce_scatter uneven",
        lambda x, g, n: tc.reduce_scatter(x, sizes=_sizes(n), grad=g),
        _total,
        _APART,
    ),
    GradientCase(
        "reduce_scatter max", lambda x, g, n: tc.reduce_scatter(x, op="max", grad=g), typed=_APART
    ),
    GradientCase(
        "reduce_scatter product",
        lambda x, g, n: tc.reduce_scatter(x, op="product", sizes=_sizes(n), grad=g),
        _total,
        _APART,
    ),
    GradientCase("all_to_all", lambda x, g, n: tc.all_to_all(x, grad=g)),
    GradientCase("all_to_all uneven", _all_to_all_uneven, _all_to_all_rows),
    GradientCase("all_to_all 0 to 1", lambda x, g, n: tc.all_to_all(x, 0, concat_dim=1, grad=g)),
    GradientCase("broadcast", lambda x, g, n: tc.broadcast(x, n - 1, grad=g), typed=_GATHERED),
    GradientCase("broadcast in a group", _subgroups, typed=_GATHERED),
    GradientCase("reduce sum", lambda x, g, n: tc.reduce(x, n - 1, grad=g), typed=_APART),
    GradientCase("reduce min", lambda x, g, n: tc.reduce(x, 0, "min", grad=g), typed=_APART),
    GradientCase("gather", lambda x, g, n: tc.gather(x, 1, 1, grad=g), least=2),
    GradientCase(
        "gather uneven", lambda x, g, n: tc.gather(x, 0, sizes=_sizes(n), grad=g), _uneven
    ),
    GradientCase("scatter", lambda x, g, n: tc.scatter(x, 1, grad=g), least=2),
    GradientCase(
        "scatter uneven", lambda x, g, n: tc.scatter(x, 0, sizes=_holey(n), grad=g), _holey_rows
    ),
    GradientCase("permute", lambda x, g, n: tc.permute(x, [(0, 1), (1, 0)], grad=g), least=2),
    GradientCase("permute partial", lambda x, g, n: tc.permute(x, {0: n - 1}, grad=g)),
    GradientCase("shift", lambda x, g, n: tc.shift(x, grad=g)),
    GradientCase("shift, no wrap", lambda x, g, n: tc.shift(x, -1, wrap=False, grad=g), least=2),
    GradientCase("shard", lambda x, g, n: tc.shard(_same(x, g), grad=g) * 2, typed=_KEPT),
    GradientCase(
        "shard uneven",
        lambda x, g, n: tc.shard(_same(x, g), sizes=_sizes(n), grad=g),
        _total,
        _KEPT,
    ),
    GradientCase("vary", lambda x, g, n: tc.vary(_same(x, g), grad=g) * x, typed=_KEPT),
    GradientCase("tree_all_reduce", _tree, typed=_SUMMED),
    GradientCase("tree_reduce_scatter", _tree_apart, typed=_APART),
    GradientCase("async_op", _later, typed=_SUMMED),
    GradientCase("send, recv", _send_around, least=2),
    GradientCase("barrier", _behind_barrier),
)

_BY_NAME: Final = {case.name: case for case in CASES}
# In the table: what is asked for, and how the loss is.
CONVENTIONS: Final = ("sum", "replicated", "typed, sum", "typed, replicated")


def program(*tensors: Tensor, name: str, convention: str, size: int) -> Tensor:
    """Run a case; where the loss is replicated, return one that is the same on each rank."""
    case = _BY_NAME[name]
    kind, replicated = convention.rpartition(", ")[0], convention.endswith("replicated")
    grad: Grad = convention
    if kind:
        grad = tc.Typed(*case.typed[replicated])
    result = case.run(tensors[0], grad, size)
    if not replicated:
        return result
    # Of a varying result, the sum of a function of each rank's; of one that is invariant, itself.
    if case.typed[1][1] == "invariant":
        return result
    return tc.all_reduce((result * result).sum() + result.sum(), grad="replicated")


def inputs(rank: int, size: int, *, name: str) -> Sequence[Tensor]:
    """Return a rank's tensor."""
    rows = _BY_NAME[name].rows
    count = 2 * size if rows is None else rows(rank, size)
    return [random_like(torch.empty(count, 3, dtype=torch.float64), 5, rank)]
