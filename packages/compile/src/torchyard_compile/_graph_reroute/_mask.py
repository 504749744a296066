"""Causal masks as nodes of a graph: layers share one."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from torchyard_compile._graph_nodes import value_of

if TYPE_CHECKING:
    from torchyard_attention.graph_call import GraphMask

__all__ = ["CausalMasks", "causal_mask"]


def causal_mask() -> GraphMask:
    """Return the call that makes the mask of a row that sees keys up to its own index."""
    from torchyard_attention.graph_call import graph_mask

    return graph_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)


@dataclass(frozen=True, slots=True)
class CausalMasks:
    """The causal masks of one graph, by their lengths."""

    graph: fx.Graph
    _known: dict[Hashable, list[fx.Node]] = field(default_factory=dict)

    def insert(self, call: GraphMask, query: fx.Node, key: fx.Node) -> dict[int, fx.Node]:
        """Return by identity the nodes of a mask's tensors; new ones where the graph inserts.

        Args:
            call: what makes it.
            query, key: of the attention, [..., Sq, D] and [..., Sk, D].
        """
        of_query, of_key = value_of(query), value_of(key)
        assert of_query is not None
        assert of_key is not None
        form = of_query.device, str(of_query.shape[-2]), str(of_key.shape[-2])
        nodes = self._known.get(form)
        if nodes is None:
            graph = self.graph
            sizes = (1, 1, self._rows(query, of_query.shape[-2]), self._rows(key, of_key.shape[-2]))
            anchor = graph.call_function(torch.empty, (0,), {"device": of_query.device})
            made = graph.call_function(call.op, call.arguments(anchor, sizes))
            nodes = [graph.call_function(operator.getitem, (made, place)) for place in range(6)]
            self._known[form] = nodes
        return dict(zip(map(id, call.blocks.tensors), nodes, strict=True))

    def _rows(self, node: fx.Node, size: Any) -> Any:
        return size if isinstance(size, int) else self.graph.call_method("size", (node, -2))
