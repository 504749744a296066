"""What a pass reads of any node of a graph, and what it puts into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from torchyard_compile import torch_compat
from torchyard_compile._choice import LeftAlone

__all__ = ["meta_of", "place_of", "sizes_of", "value_of", "with_nodes"]


def value_of(node: fx.Node) -> Tensor | None:
    """Return the tensor, without data, that stands for a node's result; None for another kind."""
    # The second is that of graphs before torch's own passes.
    value = node.meta.get("val", node.meta.get("example_value"))
    return value if isinstance(value, Tensor) else None


def sizes_of(sizes: Iterable[Any]) -> tuple[int, ...] | None:
    """Return sizes as numbers, a dynamic one as the size of the call that is compiled.

    None where one is not known before the graph runs.
    """
    found = tuple(torch_compat.size_hint(size) for size in sizes)
    return None if None in found else found  # type: ignore[return-value]


def meta_of(node: fx.Node) -> Tensor:
    """Return a tensor on the device ``meta`` like a node's result, with its strides.

    A dynamic size is that of the call that is compiled.

    Raises:
        LeftAlone: it is no tensor of memory, or a size is not known before the graph runs.
    """
    value = value_of(node)
    if value is None or value.layout is not torch.strided:
        raise LeftAlone(f"{node.name} is no tensor with strides")
    sizes, strides = sizes_of(value.shape), sizes_of(value.stride())
    if sizes is None or strides is None:
        raise LeftAlone("a size is not known before the graph runs")
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


def place_of(node: fx.Node) -> str:
    """Return file and line of the model's code that a node is of; a question mark if unknown."""
    for line in reversed(str(node.meta.get("stack_trace", "")).splitlines()):
        words = line.strip().split('"')
        if len(words) == 3 and words[0] == "File ":
            number = words[2].removeprefix(", line ").partition(",")[0]
            return f"{words[1].replace(chr(92), '/').rpartition('/')[2]}:{number}"
    return "?"


def with_nodes(arguments: Any, nodes: Mapping[int, fx.Node]) -> Any:
    """Return a call's arguments with nodes in the places of tensors.

    Args:
        arguments: of a GraphCall.
        nodes: by the tensor's identity.
    """
    if isinstance(arguments, Tensor):
        return nodes[id(arguments)]
    if isinstance(arguments, (list, tuple)):
        return type(arguments)(with_nodes(item, nodes) for item in arguments)
    return arguments
