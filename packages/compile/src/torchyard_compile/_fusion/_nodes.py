"""What a pass reads of the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.nn import functional

from torchyard_compile import torch_compat
from torchyard_compile._choice import LeftAlone

__all__ = [
    "applied",
    "cast_of",
    "is_pointwise",
    "is_reshape",
    "place_of",
    "sizes_of",
    "value_of",
]

_ATEN: Final = torch.ops.aten
_RESHAPES: Final = (_ATEN.reshape.default, _ATEN.view.default, _ATEN._unsafe_view.default)
_CAST: Final = torch.ops.prims.convert_element_type.default


def value_of(node: fx.Node) -> Tensor | None:
    """Return the tensor, without data, that stands for a node's result; None for another kind."""
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


def sizes_of(sizes: Iterable[Any]) -> tuple[int, ...] | None:
    """Return sizes as numbers, a dynamic one as the size of the call that is compiled.

    None where one is not known before the graph runs.
    """
    found = tuple(torch_compat.size_hint(size) for size in sizes)
    return None if None in found else found  # type: ignore[return-value]


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


def place_of(node: fx.Node) -> str:
    """Return file and line of the model's code that a node is of; a question mark if unknown."""
    for line in reversed(str(node.meta.get("stack_trace", "")).splitlines()):
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File ":
            number = words[2].removeprefix(", line ").partition(",")[0]
            return f"{words[1].replace(chr(92), '/').rpartition('/')[2]}:{number}"
    return "?"
