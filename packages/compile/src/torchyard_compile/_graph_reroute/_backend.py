"""``GraphReroute``: a backend of torch.compile that sends parts of a graph to ops of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from torch import fx

from torchyard import arguments, registry
from torchyard_compile import torch_compat
from torchyard_compile._calls import Calls, CallSite
from torchyard_compile._choice import LeftAlone, implementation_of
from torchyard_compile._graph_nodes import place_of
from torchyard_compile._graph_reroute._attention import Attention
from torchyard_compile._graph_reroute._calls import call_of
from torchyard_compile._graph_reroute._dot_product import dot_product_attention
from torchyard_compile._graph_reroute._mask import CausalMasks
from torchyard_compile._graph_reroute._selection import Selection, selection_of
from torchyard_compile._graph_reroute._written import written_attention

__all__ = ["GraphReroute"]

_Part = Attention | Selection
_Finder = Callable[[fx.Node, Mapping[fx.Node, int]], _Part | None]

# What is looked for, and the package with the op of ours.
_PARTS: Final[Sequence[tuple[_Finder, str]]] = (
    (written_attention, "torchyard_attention"),
    (dot_product_attention, "torchyard_attention"),
    (selection_of, "torchyard_kernels"),
)
# What a part is called by the function that it is found by, where that is not the whole.
_WHOLES: Final = MappingProxyType({"softmax": "attention"})


class GraphReroute:
    """torch.compile of a graph in which attention and selection are ours where that is chosen.

    ``torch.compile(model, backend=GraphReroute())``. Attention that a model writes out, as a
    product of queries and keys, elementwise operations, a softmax and a product with values,
    becomes one call of ``flex_attention``, without a tensor of all scores; ``torch.topk``, and a
    sort of which the first elements alone are read, one of ``topk``. Only where the registry
    chooses an implementation of a device's plugin, of the backward pass too where gradients are
    wanted; :meth:`explain` says what, or why not. Results differ by rounding, and rows of which
    every score is -inf are 0.

    Args:
        inner: what compiles the graph then: a backend's name, or a callable such as
            :class:`LinearFusion`; None: Inductor, with torch.compile's mode and options.
    """

    def __init__(self, inner: str | Callable[..., Any] | None = None) -> None:
        if inner is not None and not isinstance(inner, str):
            arguments.function("GraphReroute", "inner", inner)
        self._inner = inner
        self._calls = Calls()

    def __call__(
        self, graph: fx.GraphModule, inputs: Sequence[Any], **options: Any
    ) -> Callable[..., Any]:
        """Compile a graph, as torch.compile asks of a backend.

        Args:
            graph, inputs: what is compiled, and examples of its inputs.
            options: torch.compile's, for the inner backend.
        """
        arguments.instance("GraphReroute", "graph", graph, fx.GraphModule, "a GraphModule")
        for module in graph.modules():
            if isinstance(module, fx.GraphModule) and self._change(module.graph):
                module.recompile()
        return torch_compat.compile_by(self._inner, graph, inputs, options)

    def explain(self) -> tuple[CallSite, ...]:
        """Return what was found in graphs, what computes it, and why."""
        return self._calls.sites()

    def _change(self, graph: fx.Graph) -> bool:
        """Put calls of ours into a graph; return whether it changed."""
        order, masks, changed = _order(graph), CausalMasks(graph), False
        finders = [find for find, package in _PARTS if _is_installed(package)]
        for node in list(graph.nodes):
            if any(self._replace(masks, node, order, find) for find in finders):
                order, changed = _order(graph), True
        return changed

    def _replace(
        self, masks: CausalMasks, node: fx.Node, order: Mapping[fx.Node, int], find: _Finder
    ) -> bool:
        """Put a call in the place of the part that a node belongs to; return whether it did."""
        call = call_of(node)
        if call is None:
            return False
        name, form = call.name, (str(node.meta.get("example_value")),)
        try:
            part = find(node, order)
            if part is None:
                return False
            made, insert = part.call(masks)
            choices = [
                implementation_of(partial(registry().decide, contract, request))
                for contract, request in made.requests.items()
            ]
        except (LeftAlone, TypeError, ValueError) as why:
            self._calls.note(name, form, "", str(why), place_of(node))
            return False
        graph = masks.graph
        with graph.inserting_before(part.end):
            part.end.replace_all_uses_with(insert(graph))
        for old in part.nodes:
            if not old.users:
                graph.erase_node(old)
        self._calls.note(_WHOLES.get(name, name), form, *choices[0], place_of(node))
        return True


def _order(graph: fx.Graph) -> dict[fx.Node, int]:
    return {node: position for position, node in enumerate(graph.nodes)}


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None
