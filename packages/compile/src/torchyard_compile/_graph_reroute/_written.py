"""Attention that a model writes out: a product, a softmax, and a product with values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import place_of, value_of
from torchyard_compile._graph_reroute._attention import Attention
from torchyard_compile._graph_reroute._calls import CASTS, call_of, writes_memory
from torchyard_compile._graph_reroute._scores import factors_of, scores_of

__all__ = ["written_attention"]


def written_attention(node: fx.Node, order: Mapping[fx.Node, int]) -> Attention | None:
    """Return the attention whose softmax a node is; None for any other node.

    Args:
        node: any node of a graph as a model wrote it.
        order: the position of each node in the graph.

    Raises:
        LeftAlone: a softmax that is of no attention, or of one that differs; says why.
    """
    call = call_of(node)
    if call is None or call.name != "softmax":
        return None
    dim, value = call.argument(1, "dim"), value_of(node)
    if not node.all_input_nodes or value is None or not isinstance(dim, int):
        raise LeftAlone("its dimension is not known before the graph runs")
    if dim not in (-1, value.ndim - 1):
        raise LeftAlone(f"it is along dimension {dim}, not the last one")
    weights, end = _readers(node)
    factors = factors_of(end)
    if factors is None or factors.rows is not weights[-1] or factors.added is not None:
        raise LeftAlone(f"weights are read at {place_of(end)}, by no product with values")
    found = scores_of(node, weights, order)
    nodes = (end, *(*found.start, *found.nodes, *weights)[::-1])
    _check_writes(nodes, order)
    return Attention(
        found.factors.rows,
        found.factors.columns,
        factors.columns,
        found.scale,
        found.captured,
        found.function,
        end,
        nodes,
        transposed=True,
    )


def _readers(softmax: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """Return the softmax and what only converts its result, and the node that reads that."""
    weights = [softmax]
    while True:
        users = list(weights[-1].users)
        if len(users) != 1:
            raise LeftAlone(f"weights are read by {len(users)} operations")
        (user,) = users
        call = call_of(user)
        if call is None or call.args[:1] != (weights[-1],):
            return weights, user
        if call.name == "dropout":
            p, training = call.argument(1, "p", 0.5), call.argument(2, "training", True)
            if p and call.kwargs.get("train", training):
                raise LeftAlone("dropout: torch draws other weights to drop")
        elif call.name not in CASTS:
            return weights, user
        weights.append(user)


def _check_writes(nodes: Sequence[fx.Node], order: Mapping[fx.Node, int]) -> None:
    """Raise LeftAlone where something is written to between them: all is read at the end now."""
    first, last, inside = order[nodes[-1]], order[nodes[0]], set(nodes)
    for node, position in order.items():
        if first < position < last and node not in inside and writes_memory(node):
            raise LeftAlone(f"a tensor may be written to in between, at {place_of(node)}")
