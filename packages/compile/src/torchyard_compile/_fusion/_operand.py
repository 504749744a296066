"""A tensor that a product reads: a node's result, or a view of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import sizes_of, value_of

__all__ = ["Operand"]


@dataclass(frozen=True, slots=True)
class Operand:
    """A node's result as it is read.

    Attributes:
        node: whose result it is.
        sizes: that it is reshaped to; None leaves it as it is.
        transposed: whether its two dimensions are exchanged.
    """

    node: fx.Node
    sizes: tuple[int, ...] | None = None
    transposed: bool = False

    def meta(self) -> Tensor:
        """Return a tensor on the device ``meta`` like it.

        A dynamic size is that of the call that is compiled.

        Raises:
            LeftAlone: a size is not known before the graph runs.
        """
        value = value_of(self.node)
        assert value is not None
        sizes = sizes_of(value.shape)
        if sizes is None:
            raise LeftAlone("a size is not known before the graph runs")
        found = torch.empty(sizes, dtype=value.dtype, device="meta")
        found = found if self.sizes is None else found.reshape(self.sizes)
        return found.mT if self.transposed else found

    def place(self, graph: fx.Graph) -> fx.Node:
        """Return the node of it; a view becomes a new node where the graph inserts."""
        node = self.node
        if self.sizes is not None:
            node = _inserted(graph, torch.ops.aten.reshape.default, node, list(self.sizes))
        if self.transposed:
            node = _inserted(graph, torch.ops.aten.permute.default, node, [1, 0])
        return node


def _inserted(graph: fx.Graph, op: Any, node: fx.Node, numbers: list[int]) -> fx.Node:
    new = graph.call_function(op, (node, numbers))
    # Computes sizes alone: the values of a graph that is compiled have no data.
    new.meta["val"] = op(node.meta["val"], numbers)
    return new
