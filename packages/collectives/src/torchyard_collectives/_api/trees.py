"""Collectives of many tensors at once: one message for all tensors of a dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchyard_collectives._api.movements import all_gather, broadcast
from torchyard_collectives._api.reductions import all_reduce, reduce_scatter
from torchyard_collectives._torch_compat import tree_flatten, tree_unflatten
from torchyard_collectives._validation.gradient import Grad
from torchyard_collectives._validation.group import Group, resolve
from torchyard_collectives._validation.reduction import Op, PremulSum
from torchyard_collectives._validation.sizes import check_split, dimension

__all__ = ["tree_all_gather", "tree_all_reduce", "tree_broadcast", "tree_reduce_scatter"]


def tree_all_reduce(tree: Any, op: Op = "sum", group: Group = None, *, grad: Grad) -> Any:
    """Reduce every tensor of a tree, in one message for each dtype.

    Args:
        tree: tensors in any nesting of lists, tuples and dictionaries, alike on every rank.
        op, group, grad: as for all_reduce; the factor of a PremulSum is a number.

    Returns:
        the same nesting.

    Raises:
        TypeError: a leaf is no tensor, or a factor is one.
    """
    if isinstance(op, PremulSum) and isinstance(op.factor, Tensor):
        raise TypeError("op: expected a number as the factor for a tree, got a tensor")
    return _elementwise(tree, lambda flat: all_reduce(flat, op, group, grad=grad))


def tree_broadcast(tree: Any, src: int, group: Group = None, *, grad: Grad) -> Any:
    """Give every rank the tensors of one, in one message for each dtype; see broadcast."""
    return _elementwise(tree, lambda flat: broadcast(flat, src, group, grad=grad))


def tree_all_gather(tree: Any, dim: int = 0, group: Group = None, *, grad: Grad) -> Any:
    """Put every rank's rows of each tensor together, in one message for each dtype.

    Args:
        tree: as for tree_all_reduce.
        dim: the dimension along which rows lie, in every tensor.
        group, grad: as for all_gather.
    """
    size = resolve(group).size

    def gathered(rows: list[Tensor]) -> list[Tensor]:
        flat = torch.cat([x.reshape(1, -1) for x in rows], 1)
        parts = _columns(all_gather(flat, 0, group, grad=grad), [x.numel() for x in rows])
        return [
            part.reshape(size * x.shape[0], *x.shape[1:])
            for part, x in zip(parts, rows, strict=True)
        ]

    return _along(tree, dim, gathered)


def tree_reduce_scatter(
    tree: Any, dim: int = 0, group: Group = None, *, op: Op = "sum", grad: Grad
) -> Any:
    """Reduce every tensor and give each rank some of its rows, in one message for each dtype.

    Args:
        tree: as for tree_all_reduce.
        dim: the dimension whose rows are dealt out, evenly, of every tensor.
        group, op, grad: as for reduce_scatter; the factor of a PremulSum is a number.
    """
    if isinstance(op, PremulSum) and isinstance(op.factor, Tensor):
        raise TypeError("op: expected a number as the factor for a tree, got a tensor")
    members = resolve(group)

    def dealt(rows: list[Tensor]) -> list[Tensor]:
        for x in rows:
            check_split("tensors of one size each", x, 0, None, members)
        flat = torch.cat([x.reshape(members.size, -1) for x in rows], 1)
        own = reduce_scatter(flat, 0, group, op=op, grad=grad)
        parts = _columns(own, [x.numel() // members.size for x in rows])
        return [
            part.reshape(x.shape[0] // members.size, *x.shape[1:])
            for part, x in zip(parts, rows, strict=True)
        ]

    return _along(tree, dim, dealt)


def _columns(x: Tensor, counts: list[int]) -> list[Tensor]:
    return list(torch.split(x, counts, 1))


def _elementwise(tree: Any, run: Callable[[Tensor], Tensor]) -> Any:
    def together(leaves: list[Tensor]) -> list[Tensor]:
        flat = run(torch.cat([x.reshape(-1) for x in leaves]))
        parts = torch.split(flat, [math.prod(x.shape) for x in leaves])
        return [part.view(x.shape) for part, x in zip(parts, leaves, strict=True)]

    return _by_kind(tree, together)


def _along(tree: Any, dim: int, run: Callable[[list[Tensor]], list[Tensor]]) -> Any:
    def together(leaves: list[Tensor]) -> list[Tensor]:
        dims = [dimension("dim", x, dim) for x in leaves]
        moved = run([x.movedim(own, 0) for x, own in zip(leaves, dims, strict=True)])
        return [x.movedim(0, own) for x, own in zip(moved, dims, strict=True)]

    return _by_kind(tree, together)


def _by_kind(tree: Any, together: Callable[[list[Tensor]], list[Tensor]]) -> Any:
    """Run what takes tensors of one dtype and device on each kind of a tree."""
    leaves, structure = tree_flatten(tree)
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            raise TypeError(f"tree: expected tensors as leaves, got {type(leaf).__name__}")
        kinds.setdefault((leaf.dtype, leaf.device), []).append(place)
    results: list[Any] = list(leaves)
    for (dtype, _), places in kinds.items():
        try:
            made = together([leaves[place] for place in places])
        except (TypeError, ValueError) as error:
            # They travel as one tensor, which the caller has not given.
            said = str(error)
            if not said.startswith("x: "):
                raise
            raise type(error)(f"tree: tensors of {dtype}: {said[3:]}") from error
        for place, result in zip(places, made, strict=True):
            results[place] = result
    return tree_unflatten(results, structure)
