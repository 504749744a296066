"""What a model does to the scores of an attention that it writes out, as a score_mod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Final

import torch
from torch import Tensor, fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._graph_nodes import place_of, value_of
from torchyard_compile._graph_reroute._calls import CASTS, call_of, current

__all__ = ["Factors", "Scores", "check_captured", "element_of", "factors_of", "scores_of"]

_ELEMENTWISE: Final = frozenset(
    {
        *("abs", "add", "clamp", "div", "exp", "masked_fill", "maximum", "minimum", "mul", "neg"),
        *("relu", "sigmoid", "sub", "tanh", "where"),
    }
)


@dataclass(frozen=True, slots=True)
class Factors:
    """A product of matrices: ``alpha * rows @ columns + beta * added``.

    Attributes:
        rows: [..., M, K].
        columns: [..., K, N].
        added: broadcasts to the result; None: nothing.
        alpha, beta: numbers.
    """

    rows: fx.Node
    columns: fx.Node
    added: fx.Node | None = None
    alpha: float = 1.0
    beta: float = 1.0


def factors_of(node: fx.Node) -> Factors | None:
    """Return the factors of a product; None for a node that is none."""
    call = call_of(node)
    if call is None or call.writes:
        return None
    if call.name in ("matmul", "bmm") and not call.kwargs and len(call.args) == 2:
        found = Factors(*call.args)
    elif call.name == "baddbmm":
        alpha, beta = call.kwargs.get("alpha", 1), call.kwargs.get("beta", 1)
        if len(call.args) != 3 or not _is_number(alpha) or not _is_number(beta):
            return None
        added = call.args[0] if beta else None
        found = Factors(call.args[1], call.args[2], added, alpha, beta)
    else:
        return None
    factors: tuple[object, object] = (found.rows, found.columns)
    return found if all(isinstance(factor, fx.Node) for factor in factors) else None


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Elementwise nodes between a product of queries and keys and the softmax of it.

    Attributes:
        factors: the product's.
        start: the product's node, and the one after it that only scales it.
        nodes: those after that, in the graph's order; the last one's result is the softmax's input.
        scale: what the product is multiplied by first.
        captured: what else is read; each broadcasts to the scores.
        order: the position of each node in the graph.
    """

    factors: Factors
    start: tuple[fx.Node, ...]
    nodes: tuple[fx.Node, ...]
    scale: float
    captured: tuple[fx.Node, ...]
    order: Mapping[fx.Node, int]

    def function(self, tensors: Mapping[fx.Node, Tensor], rank: int) -> Callable[..., Any] | None:
        """Return the nodes as a score_mod; None where they leave the scores as they are.

        Args:
            tensors: what takes the places of captured nodes, in their shapes.
            rank: how many dimensions the scores have, 3 or 4; of 3 the first is that of batches.
        """
        added = self.factors.added
        if not self.nodes and added is None:
            return None

        def score_mod(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            indices = (b, h, q_idx, kv_idx) if rank == 4 else (b, q_idx, kv_idx)
            values: dict[fx.Node, Any] = {
                node: element_of(tensor, indices) for node, tensor in tensors.items()
            }
            if added is not None:
                score = score + values[added] * self.factors.beta
            values |= dict.fromkeys(self.start, score)
            for node in self.nodes:
                values[node] = _applied(node, values, self.order)
            return values[self.nodes[-1]] if self.nodes else score

        return score_mod


def scores_of(softmax: fx.Node, weights: Sequence[fx.Node], order: Mapping[fx.Node, int]) -> Scores:
    """Return how a softmax's input is computed from a product.

    Args:
        softmax: its node; its first argument is the input.
        weights: it and those after it, which may read the scores' dtype.
        order: the position of each node in the graph.

    Raises:
        LeftAlone: it is no elementwise function of one product; says why.
    """
    end = current(softmax.all_input_nodes[0], softmax, order)
    shape = _shape(end)
    seen, products = [end], []
    for node in seen:
        if factors_of(node) is not None:
            products.append(node)
        elif _is_elementwise(node):
            inputs = [current(item, node, order) for item in node.all_input_nodes]
            seen += [item for item in inputs if item not in seen and _is(item, shape)]
    inside = {max(products, key=order.__getitem__)} if products else set()
    for node in sorted(seen, key=order.__getitem__):
        if _is_elementwise(node) and inside.intersection(node.all_input_nodes):
            inside.add(node)
    if end not in inside:
        raise LeftAlone("what it is of is no elementwise function of a product")
    _check_readers(inside, weights)
    product, *nodes = sorted(inside, key=order.__getitem__)
    factors = factors_of(product)
    assert factors is not None
    start, scale = [product], factors.alpha
    factor = _factor(product, nodes[0]) if nodes and factors.added is None else None
    if factor is not None:
        scale *= factor
        start.append(nodes.pop(0))
    captured = {} if factors.added is None else {factors.added: None}
    for node in nodes:
        read = (current(item, node, order) for item in node.all_input_nodes)
        captured |= dict.fromkeys(item for item in read if item not in inside)
    for node in captured:
        check_captured(node, shape)
    return Scores(factors, tuple(start), tuple(nodes), scale, tuple(captured), order)


def _factor(product: fx.Node, node: fx.Node) -> float | None:
    """Return the number by which a node multiplies a product that nothing else reads."""
    call = call_of(node)
    if call is None or call.kwargs or len(call.args) != 2 or len(product.users) > 1:
        return None
    one, other = call.args
    if call.name == "mul" and one is not product:
        one, other = other, one
    if one is not product or not _is_number(other):
        return None
    if call.name == "div":
        return 1 / other if other else None
    return float(other) if call.name == "mul" else None


def _applied(node: fx.Node, values: Mapping[fx.Node, Any], order: Mapping[fx.Node, int]) -> Any:
    call = call_of(node)
    assert call is not None
    args, kwargs = fx.node.map_arg(
        (call.args, dict(call.kwargs)), lambda item: values[current(item, node, order)]
    )
    if call.name in CASTS:
        # Scores are float32 or more until the end.
        return args[0]
    return getattr(torch, call.name)(*args, **kwargs)


def element_of(tensor: Tensor, indices: tuple[Any, ...]) -> Any:
    """Return the element of a tensor that broadcasts to the scores, at indices of those."""
    if not tensor.ndim:
        return tensor
    last = indices[-tensor.ndim :]
    return tensor[tuple(0 if n == 1 else i for n, i in zip(tensor.shape, last, strict=True))]


def _shape(node: fx.Node) -> Any:
    value = value_of(node)
    if value is None or value.ndim not in (3, 4):
        raise LeftAlone("it has neither 3 nor 4 dimensions")
    return value.shape


def _is(node: fx.Node, shape: Any) -> bool:
    value = value_of(node)
    return value is not None and value.shape == shape


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, (bool, complex))


def _is_elementwise(node: fx.Node) -> bool:
    call = call_of(node)
    if call is None or not call.kwargs.keys().isdisjoint({"inplace", "out"}):
        return False
    if call.name in CASTS:
        value = value_of(node)
        return value is not None and value.is_floating_point()
    return call.name in _ELEMENTWISE


def _check_readers(inside: set[fx.Node], weights: Sequence[fx.Node]) -> None:
    """Raise LeftAlone where scores are read elsewhere, or another tensor is written to."""
    for node in inside:
        for user in node.users:
            if user not in inside and user not in weights:
                raise LeftAlone(f"scores are read at {place_of(user)} too")
        call = call_of(node)
        if call is None or not call.writes:
            continue
        written = call_of(call.args[0])
        # What converts may return its argument, which is written to then.
        if call.args[0] not in inside or written is None or written.name in CASTS:
            raise LeftAlone(f"a tensor that may be read elsewhere is written to, {place_of(node)}")


def check_captured(node: fx.Node, shape: Sequence[Any]) -> None:
    """Raise LeftAlone where a node is no tensor that broadcasts to scores of a shape."""
    value = value_of(node)
    if value is None:
        raise LeftAlone(f"{node.name}, which the scores are computed with, is no tensor")
    if value.ndim > len(shape) or any(
        size not in (1, whole) for size, whole in zip(value.shape[::-1], shape[::-1], strict=False)
    ):
        raise LeftAlone(f"{list(value.shape)} makes the scores greater")
