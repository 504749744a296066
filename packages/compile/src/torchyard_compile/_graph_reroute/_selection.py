"""The first elements of each row in an order: ``topk``, and a sort of which no more is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import meta_of, place_of, value_of, with_nodes
from torchyard_compile._graph_reroute._calls import call_of
from torchyard_compile._graph_reroute._mask import CausalMasks

if TYPE_CHECKING:
    from torchyard import GraphCall

__all__ = ["Selection", "selection_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A node that selects, or that sorts what is cut afterwards.

    Attributes:
        node: it.
        x: its input.
        k: how many elements of each row are read.
        dim: of the rows.
        largest: whether the greatest come first.
        indices_alone: whether the node's result is the indices, not a pair of both.
    """

    node: fx.Node
    x: fx.Node
    k: int
    dim: int
    largest: bool
    indices_alone: bool = False

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """What it consists of."""
        return (self.node,)

    @property
    def end(self) -> fx.Node:
        """The node of the result."""
        return self.node

    def call(self, masks: CausalMasks) -> tuple[GraphCall, Callable[[fx.Graph], fx.Node]]:
        """Return the call that computes it, and what puts its result's node into the graph.

        Args:
            masks: not read.

        Raises:
            LeftAlone: there is none; says why.
        """
        from torchyard_kernels.topk.contract import DTYPES
        from torchyard_kernels.topk.graph_call import graph_call

        x = meta_of(self.x)
        if str(x.dtype)[6:] not in DTYPES:
            raise LeftAlone(f"orders no {x.dtype}")
        if not x.ndim or not -x.ndim <= self.dim < x.ndim:
            raise LeftAlone("there is no such dimension")
        if not 1 <= self.k <= x.shape[self.dim]:
            raise LeftAlone(f"k: expected 1 to {x.shape[self.dim]}, got {self.k}")
        found = graph_call(x, self.k, self.dim, largest=self.largest)
        device = value_of(self.x).device.type  # type: ignore[union-attr]

        def place(graph: fx.Graph) -> fx.Node:
            node = graph.call_function(found.op, with_nodes(found.arguments, {id(x): self.x}))
            if self.indices_alone:
                node = graph.call_function(operator.getitem, (node, 1))
            node.meta["stack_trace"] = self.node.meta.get("stack_trace")
            return node

        return found.on(device), place


def selection_of(node: fx.Node, order: Mapping[fx.Node, int]) -> Selection | None:
    """Return the selection that a node is; None for any other node.

    Args:
        node: any node of a graph as a model wrote it.
        order: not read: a selection is one node.

    Raises:
        LeftAlone: a sort of which more is read; says why.
    """
    call = call_of(node)
    if call is None or call.writes or call.name not in ("topk", "sort", "argsort"):
        return None
    x = call.argument(0, "input")
    if not isinstance(x, fx.Node) or value_of(x) is None or "out" in call.kwargs:
        return None
    if call.name == "topk":
        k, dim, largest = (
            call.argument(*which) for which in ((1, "k"), (2, "dim", -1), (3, "largest", True))
        )
        if not isinstance(k, int):
            raise LeftAlone("k is not known before the graph runs")
        return Selection(node, x, k, dim, largest)
    # torch has a form with ``stable`` before the dimension, by name alone.
    dim, descending = call.argument(1, "dim", -1), call.argument(2, "descending", False)
    if isinstance(dim, bool) or not isinstance(dim, int) or not isinstance(descending, bool):
        raise LeftAlone("its dimension is not known before the graph runs")
    alone = call.name == "argsort"
    read = [_length_read(user, dim, value_of(x).ndim) for user in _readers(node, alone)]  # type: ignore[union-attr]
    if not read:
        raise LeftAlone("nothing of it is read")
    return Selection(node, x, max(read), dim, descending, alone)


def _readers(node: fx.Node, alone: bool) -> Iterator[fx.Node]:
    """Yield what reads the sorted elements or their indices."""
    if alone:
        yield from node.users
        return
    for part in node.users:
        if part.target is not operator.getitem:
            raise LeftAlone(f"all of it is read at {place_of(part)}")
        yield from part.users


def _length_read(node: fx.Node, dim: int, rank: int) -> int:
    """Return how many of the first elements along a dimension a node cuts off.

    Raises:
        LeftAlone: it reads others.
    """
    call = call_of(node)
    if call is not None and call.name == "narrow" and not call.kwargs:
        _, along, start, length = call.args
        if along % rank == dim % rank and start == 0 and isinstance(length, int):
            return length
    if node.target is operator.getitem:
        index: Any = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        if ... in index:
            place = index.index(...)
            middle = (slice(None),) * (rank - len(index) + 1)
            index = (*index[:place], *middle, *index[place + 1 :])
        index = (*index, *(slice(None),) * (rank - len(index)))
        # Any other index than a slice removes or adds dimensions.
        if len(index) == rank and all(isinstance(item, (slice, int)) for item in index):
            cut = index[dim]
            if cut == 0 and isinstance(cut, int):
                return 1
            if isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1):
                stop = cut.stop
                if isinstance(stop, int) and stop > 0:
                    return stop
    raise LeftAlone(f"more than its first elements is read at {place_of(node)}")
