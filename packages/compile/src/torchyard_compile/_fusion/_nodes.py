"""What a pass reads of the nodes of a graph of core operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx
from torch.nn import functional

from torchyard_compile import torch_compat
from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import value_of

__all__ = ["applied", "cast_of", "is_pointwise", "is_reshape"]

_ATEN: Final = torch.ops.aten
_RESHAPES: Final = (_ATEN.reshape.default, _ATEN.view.default, _ATEN._unsafe_view.default)
_CAST: Final = torch.ops.prims.convert_element_type.default


def cast_of(node: fx.Node) -> fx.Node | None:
    """Return what a node converts to another dtype; None where it does something else."""
    argument = node.args[0] if node.target is _CAST else None
    return argument if isinstance(argument, fx.Node) else None


def is_reshape(node: fx.Node) -> bool:
    """Return whether a node gives the same elements other sizes."""
    return node.target in _RESHAPES


def is_pointwise(node: fx.Node) -> bool:
    """Return whether each element of a node's result is one function of elements of its inputs."""
    target = node.target
    return (
        isinstance(target, torch_compat.OpOverload)
        and torch.Tag.pointwise in target.tags
        and torch.Tag.nondeterministic_seeded not in target.tags
        # The name of one that writes into its argument ends so.
        and not target.overloadpacket.__name__.endswith("_")
        and value_of(node) is not None
        and all(value_of(argument) is not None for argument in node.all_input_nodes)
    )


def applied(node: fx.Node, given: Callable[[fx.Node], Any]) -> Any:
    """Compute a pointwise node by torch's function of its name, for values that record it.

    Raises:
        LeftAlone: torch has no such function.
    """
    found: Any = fx.node.map_arg((node.args, node.kwargs), given)
    args, kwargs = found
    if cast_of(node) is not None:
        return args[0].to(args[1])
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    function = getattr(torch, name, None) or getattr(functional, name, None)
    if function is None:
        raise LeftAlone(f"torch has no function {name}")
    return function(*args, **kwargs)
