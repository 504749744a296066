"""The pointwise nodes before and after a product that can be computed with it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor, fx

from torchyard_compile._fusion._nodes import (
    applied,
    cast_of,
    is_pointwise,
    is_reshape,
)
from torchyard_compile._fusion._operand import Operand
from torchyard_compile._graph_nodes import sizes_of, value_of

__all__ = ["Region", "region_before", "regions_after"]

# Beyond that a function is more than what follows a layer, and each of its ends is tried.
_MOST_NODES: Final = 48


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Pointwise nodes that are one function of one node, ``start``.

    Attributes:
        start: the function's input.
        nodes: in the graph's order; the last one's result is the function's.
        captured: by node what else is read, so that it broadcasts to the result.
    """

    start: fx.Node
    nodes: tuple[fx.Node, ...]
    captured: dict[fx.Node, Operand]

    @property
    def words(self) -> list[str]:
        """Names of what is computed, for people."""
        return [
            node.target.overloadpacket.__name__  # type: ignore[union-attr]
            for node in self.nodes
            if not is_reshape(node) and cast_of(node) is None
        ]

    @property
    def is_identity(self) -> bool:
        """Whether it only gives the elements other sizes."""
        return all(is_reshape(node) for node in self.nodes)

    def function(self, tensor: Callable[[Operand], Tensor]) -> Callable[[Any], Any]:
        """Return the function, as one that can be recorded.

        Args:
            tensor: returns what it captures in place of an operand.
        """
        captured = {node: tensor(operand) for node, operand in self.captured.items()}

        def function(start: Any) -> Any:
            values: dict[fx.Node, Any] = {**captured, self.start: start}
            for node in self.nodes:
                reshaped = node.all_input_nodes[0] if is_reshape(node) else None
                values[node] = (
                    applied(node, values.__getitem__) if reshaped is None else values[reshaped]
                )
            return values[self.nodes[-1]]

        return function


def regions_after(product: fx.Node, order: dict[fx.Node, int]) -> list[Region]:
    """Return functions of a product alone whose steps nothing else reads, the longest first.

    Args:
        product: its node.
        order: the position of each node in the graph.
    """
    inside = {product}
    found: list[Region] = []
    ahead = [(order[user], user) for user in product.users]
    heapq.heapify(ahead)
    seen = set(product.users)
    while ahead and len(inside) <= _MOST_NODES:
        _, node = heapq.heappop(ahead)
        if not _continues(node, inside):
            continue
        inside.add(node)
        for user in node.users.keys() - seen:
            seen.add(user)
            heapq.heappush(ahead, (order[user], user))
        # What is wider takes longer to write than to convert again where it is read.
        region = None if _is_wider(node, product) else _ending_at(node, product, inside, order)
        if region is not None:
            found.append(region)
    return found[::-1]


def _is_wider(node: fx.Node, other: fx.Node) -> bool:
    value, narrow = value_of(node), value_of(other)
    return value is not None and narrow is not None and value.itemsize > narrow.itemsize


def _continues(node: fx.Node, inside: set[fx.Node]) -> bool:
    """Return whether a node computes each of its elements of one element of each node inside."""
    value = value_of(node)
    if value is None or not value.ndim or not value.is_contiguous():
        return False
    same = is_pointwise(node) or cast_of(node) is not None
    for argument in node.all_input_nodes:
        given = value_of(argument)
        if given is None or argument not in inside:
            continue
        if same and given.shape != value.shape:
            return False
        # Rows may be cut into batches, and columns stay.
        if not same and not (is_reshape(node) and given.shape[-1] == value.shape[-1]):
            return False
    return same or is_reshape(node)


def _ending_at(
    end: fx.Node, product: fx.Node, inside: set[fx.Node], order: dict[fx.Node, int]
) -> Region | None:
    nodes, found = [end], {end}
    for node in nodes:
        for argument in node.all_input_nodes:
            if argument in inside and argument not in found:
                found.add(argument)
                nodes.append(argument)
    if any(user not in found for node in nodes[1:] for user in node.users):
        return None
    nodes.remove(product)
    nodes.sort(key=order.__getitem__)
    captured = _captured(nodes, found, end)
    return None if captured is None else Region(product, tuple(nodes), captured)


def _captured(
    nodes: list[fx.Node], inside: set[fx.Node], end: fx.Node
) -> dict[fx.Node, Operand] | None:
    """Return what nodes read besides; None where it cannot be read with the sizes at the end."""
    captured: dict[fx.Node, Operand] = {}
    for node in nodes:
        for argument in node.all_input_nodes:
            if argument not in inside:
                operand = _broadcast(argument, node, end)
                if operand is None or captured.setdefault(argument, operand) != operand:
                    return None
    return captured


def _broadcast(argument: fx.Node, node: fx.Node, end: fx.Node) -> Operand | None:
    """Return what a node reads as something that broadcasts to the result of another."""
    given, here, result = value_of(argument), value_of(node), value_of(end)
    if given is None or here is None or result is None:
        return None
    if here.shape == result.shape or not given.ndim:
        return Operand(argument)
    if all(size == 1 for size in given.shape[:-1]):
        sizes = sizes_of(given.shape[-1:])
    else:
        sizes = tuple(result.shape) if given.shape == here.shape else None
    if sizes is None or not all(isinstance(size, int) for size in sizes):
        return None
    return Operand(argument, sizes)


def region_before(x: fx.Node, consumer: fx.Node, order: dict[fx.Node, int]) -> Region | None:
    """Return the longest function whose result is a product's input and nothing else's.

    Its input is the first tensor of the same sizes and dtype. A conversion that others read too is
    computed again.

    Args:
        x: the product's input, of any number of dimensions.
        consumer: the node that reads it: the product, or a node that reshapes x for it.
        order: the position of each node in the graph.
    """
    end = value_of(x)
    if end is None or (not is_pointwise(x) and cast_of(x) is None):
        return None
    inside: set[fx.Node] = {consumer}
    ahead = [(-order[x], x)]
    seen = {x}
    leaves: list[fx.Node] = []
    while ahead and len(inside) <= _MOST_NODES:
        _, node = heapq.heappop(ahead)
        value = value_of(node)
        belongs = (
            value is not None
            and value.shape == end.shape
            and (is_pointwise(node) or cast_of(node) is not None)
            and (all(user in inside for user in node.users) or cast_of(node) is not None)
        )
        if not belongs or len(inside) > _MOST_NODES:
            leaves.append(node)
            continue
        inside.add(node)
        for argument in set(node.all_input_nodes) - seen:
            seen.add(argument)
            heapq.heappush(ahead, (-order[argument], argument))
    leaves += [node for _, node in ahead]
    nodes = sorted(inside - {consumer}, key=order.__getitem__)
    starts = [
        node
        for node in sorted(leaves, key=order.__getitem__)
        if (value := value_of(node)) is not None
        and value.shape == end.shape
        and value.dtype == end.dtype
    ]
    if not starts or all(cast_of(node) is not None for node in nodes):
        return None
    captured = {leaf: Operand(leaf) for leaf in leaves if leaf is not starts[0]}
    if any(value_of(leaf) is None for leaf in captured):
        return None
    return Region(starts[0], tuple(nodes), captured)
