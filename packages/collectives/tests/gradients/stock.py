"""torch's own differentiable collectives, as far as it has them, for the table beside ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as legacy
from torch import Tensor

__all__ = ["STOCK", "stock"]

_gather: Any = getattr(functional, "all_gather_single", functional.all_gather_tensor)
_scatter: Any = getattr(functional, "reduce_scatter_single", functional.reduce_scatter_tensor)
# Deprecated in favour of the functional ones, which lack these.
_nn: Any = legacy


def _world() -> Any:
    return dist.group.WORLD


def _all_to_all_uneven(x: Tensor) -> Tensor:
    size, rank = dist.get_world_size(), dist.get_rank()
    sizes = [(rank + other) % size for other in range(size)]
    return functional.all_to_all_single(x, sizes, sizes, _world())


def _rooted(x: Tensor, dst: int) -> Tensor:
    result: Tensor = _nn.reduce(x, dst)
    return result if dist.get_rank() == dst else result * 0


def _gathered(x: Tensor) -> Tensor:
    parts = _nn.gather(x, 1)
    whole: Tensor = torch.cat(parts, 1)
    return whole if dist.get_rank() == 1 else whole[:, :0]


def _scattered(x: Tensor) -> Tensor:
    result: Tensor = _nn.scatter(list(x.chunk(dist.get_world_size())), 1)
    return result


def _route(offset: int) -> list[int]:
    size = dist.get_world_size()
    return [(rank + offset) % size for rank in range(size)]


# The case's name -> torch's call that is meant for it. What is not here, torch has not.
STOCK: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "all_reduce sum": lambda x: functional.all_reduce(x, "sum", _world()),
    "all_reduce avg": lambda x: functional.all_reduce(x, "avg", _world()),
    "all_reduce max": lambda x: functional.all_reduce(x, "max", _world()),
    "all_reduce min": lambda x: functional.all_reduce(x, "min", _world()),
    "all_reduce product": lambda x: functional.all_reduce(x, "product", _world()),
    "all_gather dim 0": lambda x: _gather(x, 0, _world()),
    "all_gather dim 1": lambda x: _gather(x, 1, _world()),
    "reduce_scatter sum": lambda x: _scatter(x, "sum", 0, _world()),
    "reduce_scatter avg, dim -1": lambda x: _scatter(x.T, "avg", 1, _world()),
    "reduce_scatter max": lambda x: _scatter(x, "max", 0, _world()),
    "all_to_all": lambda x: functional.all_to_all_single(x, None, None, _world()),
    "all_to_all uneven": _all_to_all_uneven,
    "broadcast": lambda x: functional.broadcast(x, dist.get_world_size() - 1, _world()),
    "reduce sum": lambda x: _rooted(x, dist.get_world_size() - 1),
    "gather": _gathered,
    "scatter": _scattered,
    "shift": lambda x: functional.permute_tensor(x, _route(1), _world()),
}


def stock(x: Tensor, *, name: str) -> Tensor:
    """Run torch's collective of a case."""
    with warnings.catch_warnings():
        if not torch.compiler.is_compiling():
            warnings.simplefilter("ignore")
        return STOCK[name](x)
