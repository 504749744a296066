"""Products of a graph, and the calls of ``linear`` that take their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, fx

from torchyard_compile._choice import LeftAlone
from torchyard_compile._fusion._nodes import is_reshape
from torchyard_compile._fusion._operand import Operand
from torchyard_compile._fusion._region import Region, region_before, regions_after
from torchyard_compile._graph_nodes import value_of, with_nodes

if TYPE_CHECKING:
    from torchyard import GraphCall

__all__ = ["Product", "products_of"]

_ATEN: Final = torch.ops.aten
_DTYPES: Final = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_TRANSPOSES: Final = (_ATEN.permute.default, _ATEN.t.default)
_EXCHANGES: Final = (([1, 0],), ())


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A product of a graph, with the functions before and after it.

    Attributes:
        node: of torch's operator.
        x: [..., K], what ``before`` is a function of.
        weight: [N, K].
        bias: [N], or None.
        before, after: pointwise nodes that are computed with it; None where there are none.
    """

    node: fx.Node
    x: Operand
    weight: Operand
    bias: Operand | None
    before: Region | None
    after: Region | None

    @property
    def end(self) -> fx.Node:
        """The node whose result it is."""
        return self.node if self.after is None else self.after.nodes[-1]

    @property
    def nodes(self) -> list[fx.Node]:
        """The nodes that it takes the place of, the last one first."""
        after = () if self.after is None else self.after.nodes
        before = () if self.before is None else self.before.nodes
        between = [item for item in self.node.all_input_nodes if is_reshape(item)]
        return [*reversed(after), self.node, *between, *reversed(before)]

    @property
    def text(self) -> str:
        """What it computes, for people: names of torch's operators in their order."""
        before = [] if self.before is None else self.before.words
        after = [] if self.after is None else self.after.words
        return " ".join([*before, "linear", *after])

    def call(self) -> tuple[GraphCall, Callable[[fx.Graph], fx.Node]]:
        """Return the call of ``linear`` that computes it, and what puts its node into the graph.

        Raises:
            LeftAlone, TypeError, ValueError: there is none; says why.
        """
        from torchyard_kernels.linear.graph_call import graph_call

        # By the tensor's identity; the tensors are kept, so that no other gets theirs.
        operands: dict[int, tuple[Tensor, Operand]] = {}

        def tensor(operand: Operand) -> Tensor:
            found = operand.meta()
            operands[id(found)] = found, operand
            return found

        before, after = (
            None if region is None or region.is_identity else region.function(tensor)
            for region in (self.before, self.after)
        )
        bias = None if self.bias is None else tensor(self.bias)
        found = graph_call(
            tensor(self.x), tensor(self.weight), bias, prologue=before, epilogue=after
        )
        result = value_of(self.end)
        assert result is not None
        if found.dtype != result.dtype:
            raise LeftAlone(f"its result would be {found.dtype}, not {result.dtype}")
        device = result.device.type

        def place(graph: fx.Graph) -> fx.Node:
            arguments = with_nodes(
                found.arguments,
                {key: operand.place(graph) for key, (_, operand) in operands.items()},
            )
            node = graph.call_function(found.op, arguments)
            node.meta.update(self.end.meta)
            return node

        return found.on(device), place


def products_of(node: fx.Node, order: dict[fx.Node, int]) -> Iterator[Product]:
    """Yield the product that a node is, with more and with less before and after it.

    Args:
        node: any node of a graph of core operators; of one that is no product of two matrices
            nothing is yielded.
        order: the position of each node in the graph.

    Raises:
        LeftAlone: ``linear`` computes no such product; says why.
    """
    bias: Any = None
    if node.target is _ATEN.mm.default:
        x, factor = node.args
    elif node.target is _ATEN.addmm.default:
        bias, x, factor = node.args
    else:
        return
    assert isinstance(x, fx.Node)
    assert isinstance(factor, fx.Node)
    _check(node, x, factor, bias)
    others = _weight(factor), None if bias is None else Operand(bias)
    for after in (*regions_after(node, order), None):
        rows = _rows(x, node if after is None else after.nodes[-1])
        if rows is None:
            continue
        before = None
        if rows.node is x or len(x.users) == 1:
            before = region_before(rows.node, node if rows.node is x else x, order)
        if before is not None:
            yield Product(node, Operand(before.start), *others, before, after)
        yield Product(node, rows, *others, None, after)


def _check(node: fx.Node, x: fx.Node, factor: fx.Node, bias: fx.Node | None) -> None:
    """Raise LeftAlone where ``linear`` computes no such product."""
    dtypes = {value.dtype for item in (x, factor) if (value := value_of(item)) is not None}
    if len(dtypes) != 1 or not dtypes <= _DTYPES:
        raise LeftAlone(f"factors of {', '.join(map(str, dtypes))}")
    if node.kwargs:
        raise LeftAlone(f"with {', '.join(node.kwargs)}")
    if bias is None:
        return
    value, result = value_of(bias), value_of(node)
    if value is None or result is None or value.shape != result.shape[-1:]:
        raise LeftAlone("what is added is no bias of one dimension")
    if value.dtype not in dtypes:
        raise LeftAlone(f"a bias of {value.dtype}")


def _rows(x: fx.Node, end: fx.Node) -> Operand | None:
    """Return x with the rows of a result; None where it cannot be had."""
    given, result = value_of(x), value_of(end)
    assert given is not None
    assert result is not None
    if given.shape[:-1] == result.shape[:-1]:
        return Operand(x)
    source = x.args[0] if is_reshape(x) else None
    if isinstance(source, fx.Node):
        value = value_of(source)
        if value is not None and value.shape == (*result.shape[:-1], given.shape[-1]):
            return Operand(source)
    sizes = (*result.shape[:-1], given.shape[-1])
    return Operand(x, sizes) if all(isinstance(size, int) for size in sizes) else None


def _weight(factor: fx.Node) -> Operand:
    """Return the weight [N, K] of a factor [K, N]."""
    source = factor.args[0] if factor.target in _TRANSPOSES else None
    if isinstance(source, fx.Node) and factor.args[1:] in _EXCHANGES:
        return Operand(source)
    return Operand(factor, transposed=True)
