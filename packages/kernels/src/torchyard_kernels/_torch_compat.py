"""What torch does not publish and this package alone uses of it; see ``torchyard.torch_compat``.

Each entry says what happens where torch lacks it. All were tried on torch 2.13;
packages/kernels/tests/test_torch_compat.py has the probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_map_only,
    tree_unflatten,
)

__all__ = [
    "TorchDispatchMode",
    "TreeSpec",
    "add_to_each",
    "jit",
    "norms_of",
    "storage_identity",
    "tree_flatten",
    "tree_leaves",
    "tree_map_only",
    "tree_unflatten",
    "without_graph_optimization",
]

# TorchDispatchMode is torch's documented way to see ops, in a module with an underscore. TreeSpec
# and the functions of trees are those that torch.compile and torch.export use. Without them: an
# ImportError of this package.

# The graphs of TorchScript and their types: Graph, ListType, TensorType, OptionalType, IntType,
# FloatType and BoolType, and `_create_function_from_graph`, which makes a callable of a graph. A
# replay through them has no Python between ops. Without them: an AttributeError where an execution
# graph is planned for one.
jit: Final[Any] = torch._C


@contextmanager
def without_graph_optimization() -> Iterator[None]:
    """Keep TorchScript from rewriting a graph when it is first run in this thread.

    Without torch's switch: an AttributeError at the first replay.
    """
    before = torch._C._get_graph_executor_optimize()
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)


def storage_identity(tensor: Tensor) -> int:
    """Return a number that tensors have in common if and only if they share their storage.

    torch has no public one: addresses are equal for all empty storages. Without it: an
    AttributeError where an execution graph is recorded.
    """
    return int(tensor.untyped_storage()._cdata)


def norms_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the 2-norm of each tensor, in one call. Without torch's: an AttributeError."""
    found: Callable[[list[Tensor]], Sequence[Tensor]] = torch._foreach_norm
    return list(found(list(tensors)))


def add_to_each(tensors: Sequence[Tensor], number: float) -> None:
    """Add a number to each tensor in place, in one call. Without torch's: an AttributeError."""
    torch._foreach_add_(list(tensors), number)
