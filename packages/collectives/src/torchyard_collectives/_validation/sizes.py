"""How many rows each rank holds: checks that one rank can make alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torchyard import arguments
from torchyard_collectives._validation.group import Members

__all__ = ["check_root", "check_sizes", "check_split", "dimension", "even"]


def dimension(name: str, x: Tensor, dim: int) -> int:
    """Return a dimension counted from the front.

    Raises:
        ValueError: x has no such dimension.
    """
    dim = arguments.integer("collective", name, dim)
    if not -x.ndim <= dim < x.ndim:
        hint = "; a scalar has none: unsqueeze(0) it" if x.ndim == 0 else ""
        raise ValueError(f"{name}: expected a dimension of x {list(x.shape)}, got {dim}{hint}")
    return dim % x.ndim


def even(rows: Any, size: int) -> list[Any]:
    """Return as many rows for each rank."""
    return [rows // size] * size


def check_sizes(name: str, sizes: Sequence[int], members: Members) -> list[int]:
    """Return rows per rank.

    Raises:
        ValueError: not one number for each rank.
    """
    found = list(arguments.sequence("collective", name, sizes, arguments.integer))
    if len(found) != members.size or any(size < 0 for size in found):
        raise ValueError(
            f"{name}: expected {members.size} numbers of rows, one for each rank, got {found}"
        )
    return found


def check_split(
    name: str, x: Tensor, dim: int, sizes: Sequence[int] | None, members: Members
) -> list[int] | None:
    """Return how x is taken apart along a dimension; None: evenly.

    Raises:
        ValueError: its rows cannot be dealt out so.
    """
    rows = x.shape[dim]
    if sizes is None:
        if rows % members.size:
            raise ValueError(
                f"x: expected rows of dimension {dim} that {members.size} ranks divide, got "
                f"{rows}; pass {name}"
            )
        return None
    checked = check_sizes(name, sizes, members)
    if sum(checked) != rows:
        raise ValueError(f"{name}: expected a sum of {rows}, x's rows, got {checked}")
    return checked


def check_root(name: str, root: int, members: Members) -> int:
    """Return a group rank.

    Raises:
        ValueError: the group has no such rank.
    """
    root = arguments.integer("collective", name, root)
    if not 0 <= root < members.size:
        raise ValueError(
            f"{name}: expected a rank within the group, 0 to {members.size - 1}, got {root}; for a "
            "global rank, torch.distributed.get_group_rank() returns it"
        )
    return root
