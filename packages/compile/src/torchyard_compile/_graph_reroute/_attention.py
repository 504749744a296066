"""One call of ``flex_attention`` in the place of a part of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import meta_of, value_of, with_nodes
from torchyard_compile._graph_reroute._mask import CausalMasks, causal_mask

if TYPE_CHECKING:
    from torchyard import GraphCall

__all__ = ["Attention"]


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """Attention that a graph computes.

    Attributes:
        query, value: nodes of [B, H, Sq, D] and [B, H, Sk, V], or without H.
        key: of [B, H, Sk, D], likewise; where ``transposed`` of [B, H, D, Sk].
        scale: multiplies the raw scores.
        captured: what else the scores are computed with; each broadcasts to them.
        score_mod: returns what is done to the scores, None for nothing: of tensors that take the
            places of what is captured, and of the number of dimensions.
        causal: whether a row sees keys up to its own index alone.
        end: the node of the result, [B, H, Sq, V].
        nodes: what it consists of, the last first.
    """

    query: fx.Node
    key: fx.Node
    value: fx.Node
    scale: float
    captured: tuple[fx.Node, ...]
    score_mod: Callable[[Mapping[fx.Node, Tensor], int], Callable[..., Any] | None]
    end: fx.Node
    nodes: tuple[fx.Node, ...]
    transposed: bool = False
    causal: bool = False

    def call(self, masks: CausalMasks) -> tuple[GraphCall, Callable[[fx.Graph], fx.Node]]:
        """Return the call that computes it, and what puts its result's node into the graph.

        Args:
            masks: of the graph.

        Raises:
            LeftAlone, TypeError, ValueError: there is none; says why.
        """
        from torchyard_attention.graph_call import graph_call

        result = value_of(self.end)
        assert result is not None
        rank, device = result.ndim, result.device
        captured = {node: meta_of(node) for node in self.captured}
        # One element is that of every index.
        captured |= {node: t.reshape(()) for node, t in captured.items() if t.numel() == 1}
        query, key, value = (meta_of(node) for node in (self.query, self.key, self.value))
        key = key.mT if self.transposed else key
        _check(query, key, value, result)
        if rank == 3:
            query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
        mask = causal_mask() if self.causal else None
        found = graph_call(
            query,
            key,
            value,
            self.score_mod(captured, rank),
            mask,
            self.scale,
            grad=result.requires_grad,
        )

        def insert(graph: fx.Graph) -> fx.Node:
            heads = [self.query, self.key, self.value]
            if rank == 3:
                heads = [_inserted(graph, torch.unsqueeze, node, 1) for node in heads]
            if self.transposed:
                heads[1] = _inserted(graph, torch.transpose, heads[1], -1, -2)
            nodes = dict(zip(map(id, (query, key, value)), heads, strict=True))
            nodes |= {
                id(tensor): _inserted(graph, torch.reshape, node, ()) if tensor.ndim == 0 else node
                for node, tensor in captured.items()
            }
            if mask is not None:
                nodes |= masks.insert(mask, self.query, heads[1])
            call = graph.call_function(found.op, with_nodes(found.arguments, nodes))
            node = graph.call_function(operator.getitem, (call, 0))
            if rank == 3:
                node = graph.call_function(torch.squeeze, (node, 1))
            node.meta.update(self.end.meta)
            return node

        return found.on(device.type), insert


def _check(query: Tensor, columns: Tensor, value: Tensor, result: Tensor) -> None:
    """Raise LeftAlone where the op of ours computes something else."""
    if any(tensor.ndim != result.ndim for tensor in (query, columns, value)):
        raise LeftAlone("numbers of dimensions differ, which torch broadcasts")
    if not query.shape[:-2] == columns.shape[:-2] == value.shape[:-2]:
        raise LeftAlone("batches or heads differ, which torch broadcasts")
    dtypes = {tensor.dtype for tensor in (query, columns, value, result)}
    if len(dtypes) > 1:
        raise LeftAlone(f"dtypes differ: {', '.join(sorted(map(str, dtypes)))}")


def _inserted(graph: fx.Graph, function: Callable[..., Any], node: fx.Node, *rest: Any) -> fx.Node:
    new = graph.call_function(function, (node, *rest))
    # Computes sizes alone: the values of a graph that is compiled have no data.
    new.meta["example_value"] = function(value_of(node), *rest)
    return new
